"""Hooks into a run, called in the driver: those of users, and the files and tables that show how it goes."""
from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raygo.train._show import RunView, place_for
from raygo.train.error import ControllerError

if TYPE_CHECKING:
    from raygo.train._checkpoint import Checkpoint
    from raygo.train._gather import Gather
    from raygo.train._messages import Report
    from raygo.train._run import Run
    from raygo.train._worker_group import WorkerGroup

log = logging.getLogger("raygo.train")


class RayTrainCallback:
    """What all hooks of raygo.train have in common."""


class UserCallback(RayTrainCallback):
    """Subclass it and give an instance to ``RunConfig(callbacks=[...])``."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """After all workers have reported.

        Parameters
        ----------
        run_context : object
            The run: `run_config` and the trainer's other settings.
        metrics : list of dict
            What each rank reported, by rank.
        checkpoint : Checkpoint, optional
            The checkpoint that was stored with it.
        """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """After workers failed; `worker_exceptions` has their errors by rank."""


class TrialView:
    """A run as callbacks and loggers of raygo.tune see trials."""

    def __init__(self, run: Run) -> None:
        storage = run.storage
        self.trial_id = storage.trial_id
        self.trainable_name = run.trainer_name
        self.experiment_tag = "0"
        self.config: dict[str, Any] = {"train_loop_config": run.train_loop_config or {}}
        self.evaluated_params: dict[str, Any] = {}
        self.local_path = self.logdir = storage.trial_driver_staging_path
        self.path = storage.trial_fs_path
        self.local_experiment_path = storage.experiment_driver_staging_path
        self.experiment_dir_name = storage.experiment_dir_name
        self.storage = storage
        self.status = "RUNNING"
        self.last_result: dict[str, Any] = {}
        self.checkpoint: Checkpoint | None = None
        self._name = storage.trial_name

    def __str__(self) -> str:
        return str(self._name)


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """What a user's hook raises ends the run, and says where it came from."""
    try:
        yield
    except Exception as error:
        raise ControllerError(RuntimeError(f"Training ended because {what} failed: {type(error).__name__}: {error}")) from error


class RunCallbacks:
    """All hooks of a run.  A context manager: on leaving it they learn how the run ended."""

    def __init__(self, run: Run) -> None:
        from raygo.tune.callback import CallbackList
        from raygo.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

        self._run = run
        given = list(run.run_config.callbacks or [])
        self._users = [callback for callback in given if isinstance(callback, UserCallback)]
        of_tune: list[Any] = [callback for callback in given if not isinstance(callback, UserCallback)]
        for kind in () if run.in_trial else (JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback):
            if not any(isinstance(callback, kind) for callback in of_tune):
                of_tune.append(kind())
        self._trial: Any = TrialView(run)
        self._tune = CallbackList(of_tune)
        self._view = RunView(run)
        if run.is_local:
            self._view.state = "running"        # there are no workers to start
        self._place: Any = None
        self._about: dict[str, Any] = {"iteration": 0, "trials": [self._trial], "trial": self._trial}

    def __enter__(self) -> RunCallbacks:
        self._place = None if self._run.in_trial else place_for(self._view, self._run.run_config.verbose)
        self._tune.setup(stop=None, num_samples=1, total_num_samples=1)
        self._tune.on_trial_start(**self._about)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._trial.status = "TERMINATED" if error is None else "ERROR"
        if error is None:
            self._tune.on_trial_complete(**self._about)
        else:
            self._tune.on_trial_error(**self._about)
        self._tune.on_experiment_end(trials=[self._trial])
        self._view.state = "finished" if error is None else "failed" if isinstance(error, Exception) else "interrupted"
        if self._place is not None:
            self._place.ended()

    def started(self, group: WorkerGroup, gather: Gather) -> None:
        """An attempt begins."""
        self._view.started(group, gather)
        if self._place is not None:
            self._place.started()

    def write(self, metrics: dict[str, Any]) -> None:
        """A report is complete; loggers write it before its checkpoint is noted."""
        self._about["iteration"] += 1
        self._trial.last_result = metrics
        with _named("a callback or logger"):
            self._tune.on_trial_result(**self._about, result=metrics)

    def reported(self, said: dict[int, Report], metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        """A report is complete and its checkpoint noted."""
        view = self._view
        view.metrics, view.reports = metrics, metrics["training_iteration"]
        view.profiles = {rank: report.profile for rank, report in said.items()}
        if checkpoint is not None:
            view.checkpoint = checkpoint.path.rpartition("/")[2]
        if self._place is not None:
            self._place.reported()
        if checkpoint is not None:
            self._trial.checkpoint = checkpoint
            with _named("a callback or logger"):
                self._tune.on_trial_save(**self._about)
                self._tune.on_checkpoint(**self._about, checkpoint=checkpoint)
        for callback in self._users:
            with _named(f"{type(callback).__name__}.after_report"):
                callback.after_report(self._run, [said[rank].metrics for rank in sorted(said)], checkpoint)

    def failed(self, errors: dict[int, Exception]) -> None:
        """An attempt has failed."""
        self._view.failures += 1
        self._view.state = "failed"
        for callback in self._users:
            with _named(f"{type(callback).__name__}.after_exception"):
                callback.after_exception(self._run, errors)

    def again(self) -> None:
        """The run will be tried again."""
        self._tune.on_trial_recover(**self._about)

    def should_stop(self, metrics: dict[str, Any]) -> bool:
        """Whether `RunConfig(stop=...)` says that this is enough."""
        from raygo.train._result import dig

        stop = self._run.run_config.stop
        if stop in (None, "DEPRECATED"):
            return False
        if callable(stop):
            with _named("the function RunConfig(stop=...)"):
                return bool(stop(self._trial.trial_id, metrics))
        return any((value := dig(metrics, name)) is not None and value >= limit for name, limit in stop.items())
