"""Ray's remote debugger, which raygo does not have yet."""
from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["set_trace"]


def set_trace(breakpoint_uuid: Any = None) -> NoReturn:
    """Not there yet: a worker has no terminal to debug at."""
    raise NotImplementedError(
        "raygo.util.rpdb.set_trace: raygo has no remote debugger yet. Call the function in the driver (f._function(...)) and use pdb there.")


set_trace.__raygo_stub__ = True  # type: ignore[attr-defined]
