"""Trainables as functions: `report`, ``return`` or ``yield`` their metrics."""
from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from numbers import Number
from typing import Any

from raygo.tune.execution.session import FUNCTION_ENDED, TrialSession, TrialStop
from raygo.tune.result import CHECKPOINT_DIR_NAME, DEFAULT_METRIC, DONE, RESULT_DUPLICATE
from raygo.tune.trainable.trainable import Trainable

__all__ = ["FunctionTrainable", "wrap_function"]

NULL_MARKER = ".null_marker"
TEMP_MARKER = ".temp_marker"

# How long a function that was told to stop may take to clean up.
_FAREWELL_S = 10.0


class FunctionTrainable(Trainable):
    """Runs a function in a thread of its own; a step goes from one report of it to the next."""

    function: Callable[[dict[str, Any]], Any]
    preload: tuple[str, ...] = ()           # heavy modules that the function's process is to have from its start

    def setup(self, config: dict[str, Any]) -> None:
        self._thread: threading.Thread | None = None
        self._session: TrialSession | None = None
        self._reported = False

    def step(self) -> dict[str, Any]:
        if self._thread is None:
            self._start()
        else:
            assert self._session is not None
            self._session.go_on()
        assert self._session is not None
        kind, value = self._session.reports.get()
        if isinstance(kind, dict):
            self._reported = True
            return {**kind, CHECKPOINT_DIR_NAME: value}
        if kind == "error":
            raise value
        return self._last(value)

    def _last(self, value: Any) -> dict[str, Any]:
        """What the function returned, as a last report."""
        if value is None or (self._reported and not isinstance(value, (dict, Number))):
            return {DONE: True, RESULT_DUPLICATE: True}
        return {**_metrics(value, "returned"), DONE: True, FUNCTION_ENDED: True}

    def _filled(self, result: dict[str, Any], began: float) -> dict[str, Any]:
        if result.get(RESULT_DUPLICATE):
            return result
        return super()._filled(result, began)

    def _start(self) -> None:
        if self._trial is None:
            raise RuntimeError(f"{type(self).__name__} is a function, which reports to a search: raygo.tune.Tuner({type(self).__name__}).fit() runs it")
        from raygo.train import _session

        trial = self._trial
        self._session = TrialSession(trial.storage, trial.resources, trial.checkpoint)
        _session.current = self._session  # type: ignore[assignment]
        self._thread = threading.Thread(target=self._run, args=(self._session,), name="raygo-trial", daemon=True)
        self._thread.start()

    def _run(self, session: TrialSession) -> None:
        try:
            value = type(self).function(self.config)
            if inspect.isgenerator(value):
                value = self._drain(session, value)
        except TrialStop:
            session.reports.put(("end", None))
        except BaseException as error:
            session.reports.put(("error", error))
        else:
            session.reports.put(("end", value))

    def _drain(self, session: TrialSession, values: Any) -> Any:
        while True:
            try:
                value = next(values)
            except StopIteration as end:
                return end.value
            try:
                session.report(_metrics(value, "yielded"))
            except TrialStop:
                values.close()
                raise

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        self._end_thread()
        if self._thread is not None and self._thread.is_alive():
            return False
        self._resume_counters({})
        self.config = new_config
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        self._end_thread()

    def _end_thread(self) -> None:
        if self._thread is not None and self._session is not None and self._thread.is_alive():
            self._session.stop()
            self._thread.join(_FAREWELL_S)

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        raise NotImplementedError("a function makes its checkpoints itself: raygo.tune.report(metrics, checkpoint=...)")

    def execute(self, fn: Callable[[Any], Any]) -> Any:
        """Call a function with this trainable."""
        return fn(self)

    def restore(self, checkpoint_path: Any) -> None:
        """Functions take the checkpoint up themselves, by `get_checkpoint`."""


def _metrics(value: Any, how: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, Number):
        return {DEFAULT_METRIC: value}
    raise ValueError(f"the trainable {how} a {type(value).__name__}: give a dict of metrics or a number, or call raygo.tune.report")


def wrap_function(train_func: Callable[..., Any], name: str | None = None) -> type[FunctionTrainable]:
    """A Trainable of a function.

    Parameters
    ----------
    train_func : callable
        Takes the config.
    name : str, optional
        The trainable's name; the function's by default.
    """
    if isinstance(train_func, type):
        raise TypeError(f"{train_func.__name__} is a Trainable already" if issubclass(train_func, Trainable) else
                        f"{train_func.__name__} is a class that is no raygo.tune.Trainable: give a function of a config, or a subclass of Trainable")
    check_function(train_func)
    attributes: dict[str, Any] = {"function": staticmethod(train_func)}
    resources = getattr(train_func, "_resources", None) or getattr(train_func, "_trial_resources", None)       # the latter: a trainer's
    if resources is not None:
        attributes["default_resource_request"] = classmethod(lambda cls, config: resources(config))
    return type(str(name or getattr(train_func, "__name__", "func")), (FunctionTrainable,), attributes)


def check_function(function: Callable[..., Any]) -> None:
    """Refuse what cannot be called with a config."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind({})
    except TypeError:
        raise ValueError(f"Unknown argument found in the Trainable function {getattr(function, '__name__', function)}{signature}: it is called with one "
                         "argument, the config. raygo.tune.with_parameters gives it more.") from None


