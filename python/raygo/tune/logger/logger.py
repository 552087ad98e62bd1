"""What loggers have in common.

A logger needs of a trial: `trial_id`, `config`, `evaluated_params`, `local_path` (its folder on this machine) and ``str(trial)``; so
raygo.train can log a run with the same classes.
"""
from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raygo.tune.callback import Callback

if TYPE_CHECKING:
    from raygo.train import Checkpoint
    from raygo.tune.experiment import Trial

__all__ = ["LoggerCallback", "TrialFiles", "flatten", "plain", "pretty_print"]

log = logging.getLogger("raygo.tune")


class LoggerCallback(Callback):
    """Writes down what trials do.  Subclasses have `log_trial_...`.

    A logger that raises never disturbs the trials: the first failure of each method is logged with its traceback, the others are counted
    in `failures`.
    """

    failures: int = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("log_trial_start", "log_trial_restore", "log_trial_save", "log_trial_result", "log_trial_end"):
            if name in vars(cls):
                setattr(cls, name, _never_raises(vars(cls)[name]))

    def log_trial_start(self, trial: Trial) -> None:
        """The trial has started."""

    def log_trial_restore(self, trial: Trial) -> None:
        """The trial goes on from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """The trial has a new checkpoint."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """The trial has reported."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The trial has ended."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)

    def on_checkpoint(self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        pass


def _never_raises(method: Callable[..., None]) -> Callable[..., None]:
    if getattr(method, "_never_raises", False):
        return method

    @functools.wraps(method)
    def guarded(self: LoggerCallback, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.failures += 1
            known = self.__dict__.setdefault("_failed", set())
            if (method.__name__, type(error)) not in known:
                known.add((method.__name__, type(error)))
                log.warning("%s.%s failed; the trial goes on without it", type(self).__name__, method.__name__, exc_info=True)

    guarded._never_raises = True  # type: ignore[attr-defined]
    return guarded


class TrialFiles:
    """A file for each trial that runs, open for appending.

    Parameters
    ----------
    name : str
        The file's name in the trial's folder.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: dict[str, Any] = {}

    def __contains__(self, trial: Trial) -> bool:
        return trial.trial_id in self._open

    def path(self, trial: Trial) -> str:
        """The trial's file."""
        return os.path.join(trial.local_path, self._name)

    def open(self, trial: Trial) -> None:
        """Open it, or open it again."""
        self.close(trial)
        self._open[trial.trial_id] = open(self.path(trial), "ab", buffering=0)

    def write(self, trial: Trial, data: bytes) -> None:
        """Append.  It is one write wherever that is possible, so that a driver that is killed leaves no half of it."""
        file = self._open[trial.trial_id]
        written = file.write(data)
        while written < len(data):           # the disk is nearly full: this goes on to the error that says so
            written += file.write(data[written:])

    def close(self, trial: Trial) -> None:
        """The trial writes no more."""
        if (file := self._open.pop(trial.trial_id, None)) is not None:
            file.close()

    def close_all(self) -> None:
        """No trial does."""
        while self._open:
            self._open.popitem()[1].close()


def plain(value: Any) -> Any:
    """A value that JSON does not know, as one that it knows."""
    for turn in ("tolist", "item"):          # NumPy and torch
        if hasattr(value, turn) and not isinstance(value, type):
            return getattr(value, turn)()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return str(value) if isinstance(value, (bytes, type)) else repr(value)


def flatten(metrics: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, ``a/b`` for b within a."""
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def pretty_print(result: dict[str, Any], exclude: set[str] | None = None) -> str:
    """A result as text, without what is unset and what `exclude` names."""
    left_out = {"config", "hist_stats", *(exclude or ())}
    shown = {key: value for key, value in result.items() if value is not None and key not in left_out}
    return json.dumps(shown, default=plain, indent=2, skipkeys=True)
