"""When started operations of the torch backend began and ended, to be seen beside torch.profiler's events."""
from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Span", "Trace", "current", "trace"]


@dataclass
class Span:
    """One operation: its name, its bytes, when it was started and when it had ended, in nanoseconds of the clock that the profiler has."""

    name: str
    nbytes: int
    began: int
    ended: int = 0


class Trace:
    """What `trace` has seen."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def begin(self, name: str, nbytes: int) -> Span:
        """Note that an operation is started."""
        span = Span(name, nbytes, time.time_ns())
        self.spans.append(span)
        return span

    def add_to(self, path: str | os.PathLike[str]) -> None:
        """Add the operations to a file of torch.profiler's `export_chrome_trace`, as a row of their own.

        Parameters
        ----------
        path : path
            The file; it is written anew.
        """
        with open(path) as file:
            everything = json.load(file)
        base, process, row = int(everything.get("baseTimeNanoseconds", 0)), os.getpid(), "raygo collectives"
        events = everything["traceEvents"]
        events.append({"name": "thread_name", "ph": "M", "pid": process, "tid": row, "args": {"name": row}})
        events.extend({"name": f"raygo::{span.name}", "cat": "collective", "ph": "X", "pid": process, "tid": row, "ts": (span.began - base) / 1000,
                       "dur": (span.ended - span.began) / 1000, "args": {"bytes": span.nbytes}} for span in self.spans if span.ended)
        with open(path, "w") as file:
            json.dump(everything, file)


current: Trace | None = None


@contextlib.contextmanager
def trace() -> Iterator[Trace]:
    """Note the operations that this process starts on the backend raygo.

    Examples
    --------
    >>> with torch.profiler.profile() as profile, trace() as operations:       # doctest: +SKIP
    ...     model(x).sum().backward()
    >>> profile.export_chrome_trace("trace.json")                              # doctest: +SKIP
    >>> operations.add_to("trace.json")                                        # doctest: +SKIP
    """
    global current
    if current is not None:
        raise RuntimeError("operations are being noted already: leave the other trace() first")
    current = seen = Trace()
    try:
        yield seen
    finally:
        current = None
