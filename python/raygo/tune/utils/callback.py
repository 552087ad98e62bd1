"""The callbacks that every search has."""
from __future__ import annotations

import importlib
import os
from typing import Any

from raygo.tune.callback import Callback
from raygo.tune.constants import RAY_TUNE_CALLBACKS_ENV_VAR
from raygo.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

__all__ = ["DEFAULT_CALLBACK_CLASSES", "with_default_callbacks"]

DEFAULT_CALLBACK_CLASSES = (CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback)


def with_default_callbacks(callbacks: list[Any] | None) -> list[Any]:
    """A user's callbacks, those that RAY_TUNE_CALLBACKS names, and those of the default loggers that are not among them.

    TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1 leaves the loggers out.
    """
    given = [*(callbacks or []), *_of_environment()]
    if os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") == "1":
        return given
    return given + [cls() for cls in DEFAULT_CALLBACK_CLASSES if not any(isinstance(c, cls) for c in given)]


def _of_environment() -> list[Callback]:
    made = []
    for name in filter(None, map(str.strip, os.environ.get(RAY_TUNE_CALLBACKS_ENV_VAR, "").split(","))):
        module, _, kind = name.rpartition(".")
        try:
            callback = getattr(importlib.import_module(module), kind)()
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise ValueError(f"{RAY_TUNE_CALLBACKS_ENV_VAR} has {name!r}, of which no callback can be made: {error}. Give package.module.Class") from error
        if not isinstance(callback, Callback):
            raise ValueError(f"{RAY_TUNE_CALLBACKS_ENV_VAR} has {name!r}, which is no raygo.tune.Callback")
        made.append(callback)
    return made
