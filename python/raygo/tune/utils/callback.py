"""The loggers that every search has."""
from __future__ import annotations

import os
from typing import Any

from raygo.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

__all__ = ["DEFAULT_CALLBACK_CLASSES", "with_default_callbacks"]

DEFAULT_CALLBACK_CLASSES = (CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback)


def with_default_callbacks(callbacks: list[Any] | None) -> list[Any]:
    """A user's callbacks and those of the default loggers that are not among them.

    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1 leaves them out.
    """
    given = list(callbacks or [])
    if os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") == "1":
        return given
    return given + [cls() for cls in DEFAULT_CALLBACK_CLASSES if not any(isinstance(c, cls) for c in given)]
