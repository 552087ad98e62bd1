"""Shows what workers print, and what the engine has to say.

The engine sends whole lines (LOG maps, PROTOCOL.md); one thread per session writes them to what ``sys.stdout`` and ``sys.stderr`` are at that
moment, so that redirection, notebooks and test runners see them.  A progress bar's lines replace each other: on a terminal and in a
notebook in place, elsewhere by showing one now and then and the last.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from raygo import _binding

_BAR_S = {"inline": 0.1, "lines": 1.0}  # how often at most a bar is shown
_CLEAR = "\r\x1b[K"


class LogPrinter:
    """The thread of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while one map is written: the order of lines is the order of arrival
        self._shown: dict[Any, float] = {}  # bar -> when it was last shown
        self._held: dict[Any, tuple[dict[str, Any], str]] = {}  # bar -> its latest line, when that was not shown
        self._open_line = False  # a bar stands on the terminal's last line
        self._drained = threading.Event()  # nothing more comes, or the mark that a drain ends with has come
        self._thread = threading.Thread(target=self._run, name="raygo-logs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            data = _binding.next_log(None)
            if data is None:
                self._drained.set()
                return
            if data:
                self._show(data)

    def drain(self) -> None:
        """Show all that workers wrote so far: called while the session still stands."""
        from raygo._calls import call

        self._drained.clear()
        try:
            call("drain.logs", None, 5.0)
            # The thread alone takes records, so that their order is kept.
            if threading.current_thread() is not self._thread:
                self._drained.wait()
        except Exception as error:  # the engine is gone: what it did not send is lost, but shutdown goes on
            self._write(sys.stderr, f"(raygo) the last output of workers may be missing: {error}\n")
        with self._lock:
            self._end_bars()

    def join(self) -> None:
        """Wait for the thread; the session is closed, so it ends."""
        if threading.current_thread() is not self._thread:
            self._thread.join(5)
        with self._lock:
            self._end_bars()

    def _show(self, data: bytes) -> None:
        from raygo._calls import unpack

        record: dict[str, Any] = unpack(data)
        if record.get("kind") == "drained":
            self._drained.set()
            return
        stream = sys.stdout if record.get("kind") == "out" else sys.stderr
        with self._lock:
            if record.get("progress"):
                self._bar(record, stream)
                return
            self._held.pop(_bar_key(record), None)
            self._write(stream, self._clear(stream) + text_of(record, _is_terminal(stream)))

    def _bar(self, record: dict[str, Any], stream: Any) -> None:
        key = _bar_key(record)
        inline = _is_terminal(stream) or "ipykernel" in sys.modules
        now = time.monotonic()
        if now - self._shown.get(key, -1e9) < _BAR_S["inline" if inline else "lines"]:
            self._held[key] = (record, "inline" if inline else "lines")
            return
        self._shown[key] = now
        self._held.pop(key, None)
        text = text_of(record, _is_terminal(stream)).rstrip("\n")
        if inline:
            self._write(stream, (_CLEAR if _is_terminal(stream) else "\r") + text)
            self._open_line = True
        else:
            self._write(stream, text + "\n")

    def _clear(self, stream: Any) -> str:
        if not self._open_line:
            return ""
        self._open_line = False
        return _CLEAR if _is_terminal(stream) else "\n"

    def _end_bars(self) -> None:
        for record, _ in list(self._held.values()):
            stream = sys.stdout if record.get("kind") == "out" else sys.stderr
            self._write(stream, self._clear(stream) + text_of(record, _is_terminal(stream)))
        self._held.clear()
        if self._open_line:
            self._open_line = False
            self._write(sys.stderr, "\n")

    def _write(self, stream: Any, text: str) -> None:
        if stream is None:  # no console at all
            return
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):  # closed, or the other end has gone: there is nobody left to tell
            pass


def _bar_key(record: dict[str, Any]) -> Any:
    return record.get("worker") or record.get("pid"), record.get("kind")


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def text_of(record: dict[str, Any], color: bool) -> str:
    """The lines of a LOG map, each with its prefix."""
    name, pid = record.get("name") or record.get("actor_name"), record.get("pid")
    kind = record.get("kind")
    if kind in ("out", "err"):
        prefix = f"({name or 'worker'} pid={pid})"
    else:
        prefix = "(raygo)" if kind == "info" else f"(raygo) {str(kind).upper()}:"
    if color:
        prefix = f"\x1b[36m{prefix}\x1b[0m"
    count = record.get("count") or 1
    times = f" [repeated {count}x]" if count > 1 else ""
    lines = str(record.get("text", "")).rstrip("\n").split("\n")
    return "".join(f"{prefix} {line}{times}\n" for line in lines)
