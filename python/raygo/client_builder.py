"""Connecting in steps: ``raygo.client(address).namespace(…).env(…).connect()``; `raygo.init` does the same at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo._init import RayContext

__all__ = ["ClientBuilder"]


class ClientBuilder:
    """Collects what `connect` then gives to `raygo.init`.

    Parameters
    ----------
    address
        As for `raygo.init`.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._arguments: dict[str, Any] = {}

    def env(self, env: dict[str, Any]) -> ClientBuilder:
        """Set the runtime environment."""
        self._arguments["runtime_env"] = env
        return self

    def namespace(self, namespace: str) -> ClientBuilder:
        """Set the namespace."""
        self._arguments["namespace"] = namespace
        return self

    def connect(self) -> RayContext:
        """Join the session, or start one where there is no address."""
        from raygo._init import init

        return init(self.address or "local", **self._arguments)
