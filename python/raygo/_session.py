"""The session this process belongs to: what the engine's WELCOME said.

One process has at most one session at a time.  A driver begins it in ``_init.py``, a worker right after it adopted its connection.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see _api.py
if TYPE_CHECKING:
    from typing import Any


class Session:
    """What is fixed from WELCOME to the end of the connection."""

    __slots__ = ("arguments", "incarnation", "job", "namespace", "node_id", "node_ip", "role", "runtime_env", "session_dir", "socket", "welcome", "worker")

    def __init__(self, welcome: dict[str, Any]) -> None:
        self.welcome = welcome
        self.node_id: str = welcome.get("node_id", "")
        self.incarnation: int = welcome.get("incarnation", 0)
        self.job: int = welcome.get("job", 0)
        self.namespace: str = welcome.get("namespace") or ""
        self.node_ip: str = welcome.get("node_ip") or "127.0.0.1"
        self.session_dir: str = welcome.get("session_dir") or ""
        self.socket: str = welcome.get("socket") or ""
        self.worker: int = welcome.get("worker") or 0
        self.role: str = welcome.get("role") or "driver"
        self.runtime_env: str = welcome.get("runtime_env") or ""
        self.arguments: dict[str, Any] = {}

    @property
    def session_name(self) -> str:
        """The last part of the session folder's path."""
        return self.session_dir.rstrip("/").rpartition("/")[2]

    @property
    def worker_id(self) -> bytes:
        """28 bytes that name this process within the session: the worker's number, or the driver's peer number with a mark."""
        number = self.worker or (1 << 63 | int(self.welcome.get("peer") or 0))
        return number.to_bytes(8, "little") + self.incarnation.to_bytes(8, "little") + bytes(8) + self.job.to_bytes(4, "little")


current: Session | None = None
on_end: list[Any] = []  # functions without arguments, called just before the session ends


def begin(welcome: bytes) -> Session:
    """Note the session whose WELCOME map this is."""
    from raygo._calls import unpack

    global current
    current = Session(unpack(welcome))
    _record_call_sites()
    return current


def _record_call_sites() -> None:
    """Have the binding ask where each reference is made, if Ray's variable says so; else it asks nobody and loses no time."""
    import os

    from raygo import _binding

    if os.environ.get("RAY_record_ref_creation_sites", "0").lower() in ("", "0", "false"):
        _binding.set_types(call_site=None)
        return
    from raygo._call_site import call_site

    _binding.set_types(call_site=call_site)


def end() -> None:
    """Let those who asked know that it is about to end, and forget it."""
    global current
    for function in list(on_end):
        function()
    current = None


def get() -> Session:
    """The session, or a RuntimeError that says what to do."""
    if current is None:
        raise not_initialized()
    return current


def not_initialized() -> RuntimeError:
    """What is raised where a session is needed and none may be started."""
    return RuntimeError("raygo has not been started yet. Call raygo.init() first: this needs a running session, and does not start one by itself.")
