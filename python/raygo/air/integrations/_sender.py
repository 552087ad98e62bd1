"""A thread through which a logger talks to a service, so that a service that is slow, or gone, holds up no trial."""
from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger("raygo.tune")

# Calls that may wait for the service; what is reported beyond that is dropped, and said so.
_WAITING = 10_000
_SAY_AFTER_S = 10.0


class Sender:
    """Runs calls one after the other, in a thread of its own that ends with `close`.

    A call that raises is logged, each kind of failure once, and does not disturb the others.

    Parameters
    ----------
    service : str
        Its name, for the log.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._calls: queue.Queue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.Queue(_WAITING)
        self._known: set[type[BaseException]] = set()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"raygo-{service}", daemon=True)
        self._thread.start()

    def send(self, call: Callable[..., Any], *args: Any) -> None:
        """Let the thread make a call, later."""
        try:
            self._calls.put_nowait((call, args))
        except queue.Full:
            self._dropped += 1
            if self._dropped == 1:
                log.warning("%s is too slow: %d reports wait for it, and further ones are dropped until there is room", self._service, _WAITING)

    def close(self, patience: float) -> None:
        """Wait until all calls are made, but no longer than `patience` seconds.  It may be called twice."""
        end = time.monotonic() + patience
        try:
            self._calls.put(None, timeout=patience)
            self._thread.join(min(_SAY_AFTER_S, patience))
            if self._thread.is_alive() and patience > _SAY_AFTER_S:
                log.warning("waiting for %s to take what was reported, for %g s at most", self._service, patience)
            self._thread.join(max(0.0, end - time.monotonic()))
        except queue.Full:
            pass
        if self._thread.is_alive():
            log.warning("%s has not taken all reports within %g s; about %d are lost", self._service, patience, self._calls.qsize())
        if self._dropped:
            log.warning("%s: %d reports were dropped, as the service was too slow", self._service, self._dropped)
            self._dropped = 0

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, args = item
            try:
                call(*args)
            except Exception as error:
                if type(error) not in self._known:
                    self._known.add(type(error))
                    log.warning("%s failed; training goes on without it", self._service, exc_info=True)
