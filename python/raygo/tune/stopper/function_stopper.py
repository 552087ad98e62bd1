"""Stop by a function."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from raygo.tune.stopper.stopper import Stopper

__all__ = ["FunctionStopper"]


class FunctionStopper(Stopper):
    """Stops a trial when a function of its id and report says so.

    Parameters
    ----------
    function : callable
        Takes ``trial_id`` and ``result``.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, fn: Any) -> bool:
        """Whether it can be called with an id and a report."""
        if not callable(fn) or isinstance(fn, Stopper):
            return False
        try:
            inspect.signature(fn).bind("", {})
        except TypeError:
            return False
        except ValueError:
            pass
        return True
