"""Ray's client mode, which raygo does not have."""
from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["connect", "disconnect"]


def connect(conn_str: str, secure: bool = False, metadata: Any = None, connection_retries: int = 3, job_config: Any = None,
            namespace: str | None = None, *, ignore_version: bool = False, _credentials: Any = None,
            ray_init_kwargs: dict[str, Any] | None = None) -> NoReturn:
    """Not there: a raygo driver is a full member of its session."""
    raise NotImplementedError(f"raygo.util.connect({conn_str!r}): raygo has no client mode (ray://). Use raygo.init(address=...) on a machine of the cluster.")


def disconnect() -> NoReturn:
    """Not there, as `connect`."""
    raise NotImplementedError("raygo.util.disconnect: raygo has no client mode (ray://). Use raygo.shutdown().")


connect.__raygo_stub__ = True  # type: ignore[attr-defined]
disconnect.__raygo_stub__ = True  # type: ignore[attr-defined]
