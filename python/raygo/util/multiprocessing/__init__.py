"""`multiprocessing.Pool` on the session's workers."""
from __future__ import annotations

from multiprocessing import TimeoutError
from typing import Any

from raygo.util.multiprocessing.pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]


def JoinableQueue(maxsize: int = 0) -> Any:
    """`multiprocessing.JoinableQueue`, for processes of this machine."""
    import multiprocessing

    return multiprocessing.JoinableQueue(maxsize)
