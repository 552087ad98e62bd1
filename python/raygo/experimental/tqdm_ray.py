"""Progress bars for tasks and actors, as `tqdm` has them; the driver shows one line for each.

The package tqdm works in a task as well. This one needs no package, and has the names that Ray gives.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["safe_print", "tqdm"]

_WIDTH = 20  # of the bar itself


class tqdm:
    """Count what is done, and show it.

    Parameters
    ----------
    iterable
        What is gone through; None: call `update`.
    desc, unit
        What stands before the bar, and what is counted.
    total
        How many there will be; by default the length of `iterable`, where it has one.
    position
        Accepted, without effect: each process has its own line.
    flush_interval_s
        At least so many seconds lie between two times that it is shown.

    Examples
    --------
    >>> for x in tqdm(range(100), desc="squares"):  # doctest: +SKIP
    ...     work(x)
    """

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float = 1.0,
    ) -> None:
        if total is None and iterable is not None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        self._iterable = iterable
        self._desc, self._unit, self._total = desc or "", unit or "it", total
        self._interval = flush_interval_s
        self._count = 0
        self._started = time.monotonic()
        self._shown = -1e9
        self._closed = False

    def set_description(self, desc: str) -> None:
        """Change what stands before the bar."""
        self._desc = desc
        self._show()

    def update(self, n: int = 1) -> None:
        """Count `n` more."""
        self._count += n
        self._show()

    def refresh(self) -> None:
        """Show it now."""
        self._show(True)

    def close(self) -> None:
        """Show its last state and end its line."""
        if not self._closed:
            self._show(True)
            self._closed = True
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _show(self, now: bool = False) -> None:
        at = time.monotonic()
        if self._closed or not (now or at - self._shown >= self._interval):
            return
        self._shown = at
        took = at - self._started
        speed = f"{took:.1f}s, {self._count / took if took else 0:.2f}{self._unit}/s"
        text = f"{self._count}{self._unit} [{speed}]"
        if self._total:
            full = min(self._count / self._total, 1.0)
            text = f"{full:4.0%}|{'#' * round(full * _WIDTH):{_WIDTH}}| {self._count}/{self._total} [{speed}]"
        sys.stderr.write(f"\r{self._desc + ': ' if self._desc else ''}{text}")
        sys.stderr.flush()

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise ValueError("tqdm was given nothing to go through: give it an iterable, or call update()")
        try:
            for item in self._iterable:
                yield item
                self.update()
        finally:
            self.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def safe_print(*args: Any, **kwargs: Any) -> None:
    """`print`; the driver keeps bars and lines apart."""
    print(*args, **kwargs)
