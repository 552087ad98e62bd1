"""Trainables as classes."""
from __future__ import annotations

import os
import pickle
import platform
import shutil
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from raygo.tune.result import CHECKPOINT_DIR_NAME, DONE, EPISODES_THIS_ITER, TIME_THIS_ITER_S, TIMESTEPS_THIS_ITER, TRAINING_ITERATION, TRIAL_ID

if TYPE_CHECKING:
    from raygo.train import Checkpoint
    from raygo.tune.execution.actor import TrialSetup

__all__ = ["Trainable", "TrainingResult"]

SETUP_TIME_THRESHOLD = 10
_COUNTERS_FILE = ".tune_metadata"
_DICT_FILE = "_dict_checkpoint.pkl"

# The trial that the next Trainable of this process is made for.
being_built: TrialSetup | None = None


class TrainingResult(NamedTuple):
    """A checkpoint and the report it belongs to."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]


class Trainable:
    """Subclass it: `setup` prepares, each `step` trains a little and returns metrics.

    With `save_checkpoint` and `load_checkpoint` a trial can be paused, moved and found again; with `reset_config` its process can be
    used for the next trial.

    Examples
    --------
    >>> class Counter(Trainable):
    ...     def setup(self, config):
    ...         self.value = 0
    ...     def step(self):
    ...         self.value += self.config["by"]
    ...         return {"value": self.value, "done": self.value >= 10}
    >>> counter = Counter({"by": 5})
    >>> counter.train()["value"], counter.train()["done"]
    (5, True)
    """

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None) -> None:
        self._trial = being_built
        self._storage = storage
        self.config: dict[str, Any] = config or {}
        self._iteration = self._since_restore = 0
        self._time_total = self._time_since_restore = 0.0
        self._timesteps_total: int | None = None
        self._timesteps_since_restore = 0
        self._episodes_total: int | None = None
        self._last_result: dict[str, Any] | None = None
        self._start_time = time.time()
        self._logdir: str | None = None
        self._local_ip = _node_ip()
        self._stdout_file: Any = None
        self.setup(dict(self.config))

    # ---- for subclasses

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare; called once, before the first step."""

    def step(self) -> dict[str, Any]:
        """Train a little and return metrics; ``"done": True`` in them ends the trial."""
        raise NotImplementedError(f"{type(self).__name__} has no step()")

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Write files into the folder, or return a dict to be kept."""
        raise NotImplementedError(f"{type(self).__name__} has no save_checkpoint(): it cannot be paused or found again")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Take up what `save_checkpoint` wrote: the folder, or the dict."""
        raise NotImplementedError(f"{type(self).__name__} has no load_checkpoint(): it cannot go on from a checkpoint")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial with this config; False if that cannot be."""
        return False

    def cleanup(self) -> None:
        """Called once, at the end."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with each result before it is sent."""

    def export_model(self, export_formats: Any, export_dir: str | None = None) -> dict[str, str]:
        """Write the model in other formats; the paths by format."""
        from raygo.tune.experiment.trial import ExportFormat

        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        ExportFormat.validate(formats)
        return dict(self._export_model(formats, export_dir or self.logdir))

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return {}

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """The resources of a trial, as a PlacementGroupFactory; one CPU without it."""
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """How to ask for resources, for people."""
        return ""

    # ---- what the driver calls

    def train(self) -> dict[str, Any]:
        """One step, and its metrics with what raygo.tune adds."""
        began = time.time()
        result = self.step()
        if not isinstance(result, dict):
            raise ValueError(f"{type(self).__name__}.step() returned a {type(result).__name__}: return a dict of metrics")
        result = dict(result)
        return self._filled(result, began)

    def _filled(self, result: dict[str, Any], began: float) -> dict[str, Any]:
        now = time.time()
        self._iteration += 1
        self._since_restore += 1
        took = result.get(TIME_THIS_ITER_S, now - began)
        self._time_total += took
        self._time_since_restore += took
        result.setdefault(DONE, False)
        if (steps := result.get(TIMESTEPS_THIS_ITER)) is not None:
            self._timesteps_total = (self._timesteps_total or 0) + steps
            self._timesteps_since_restore += steps
        if (episodes := result.get(EPISODES_THIS_ITER)) is not None:
            self._episodes_total = (self._episodes_total or 0) + episodes
        if self._timesteps_total is not None:
            result.setdefault("timesteps_total", self._timesteps_total)
        if self._episodes_total is not None:
            result.setdefault("episodes_total", self._episodes_total)
        result.setdefault(TRAINING_ITERATION, self._iteration)
        for key, value in self.get_auto_filled_metrics(now, took).items():
            result.setdefault(key, value)
        self._last_result = result
        self.log_result(result)
        return result

    def get_auto_filled_metrics(self, now: Any = None, time_this_iter: float | None = None, timestamp: int | None = None,
                                debug_metrics_only: bool = False) -> dict[str, Any]:
        """What is added to each report."""
        now = time.time() if now is None else now
        return {
            TRIAL_ID: self.trial_id, "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            "timestamp": timestamp if timestamp is not None else int(now), TIME_THIS_ITER_S: time_this_iter, "time_total_s": self._time_total,
            "pid": os.getpid(), "hostname": platform.node(), "node_ip": self._local_ip, "config": self.config,
            "time_since_restore": self._time_since_restore, "iterations_since_restore": self._since_restore, CHECKPOINT_DIR_NAME: None,
        }

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[dict[str, Any]]:
        """Steps for some time; their results."""
        results: list[dict[str, Any]] = []
        end = time.monotonic() + buffer_time_s
        while True:
            results.append(self.train())
            if results[-1].get(DONE) or len(results) >= max_buffer_length or time.monotonic() >= end:
                return results

    def save(self, checkpoint_dir: str | None = None) -> TrainingResult:
        """A checkpoint in the folder, or in a new temporary one."""
        from raygo.train import Checkpoint

        folder = checkpoint_dir or tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(folder, exist_ok=True)
        saved = self.save_checkpoint(folder)
        if isinstance(saved, dict):
            from raygo import cloudpickle

            with open(os.path.join(folder, _DICT_FILE), "wb") as file:
                file.write(cloudpickle.dumps(saved))
        elif isinstance(saved, (str, os.PathLike)) and not os.path.abspath(saved).startswith(os.path.abspath(folder)):
            raise ValueError(f"{type(self).__name__}.save_checkpoint returned {os.fspath(saved)!r}, which is not in the folder it was given, {folder}")
        with open(os.path.join(folder, _COUNTERS_FILE), "wb") as file:
            file.write(pickle.dumps(self.get_state()))
        return TrainingResult(Checkpoint(folder), dict(self._last_result or {}))

    def restore(self, checkpoint_path: Any) -> None:
        """Go on from a checkpoint: a path, a Checkpoint, or what `save` returned."""
        from raygo.train import Checkpoint

        checkpoint = getattr(checkpoint_path, "checkpoint", checkpoint_path)
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(os.fspath(checkpoint))
        with checkpoint.as_directory() as folder:
            counters = os.path.join(folder, _COUNTERS_FILE)
            state: dict[str, Any] = {}
            if os.path.exists(counters):
                with open(counters, "rb") as file:
                    state = pickle.loads(file.read())
            if os.path.exists(os.path.join(folder, _DICT_FILE)):
                with open(os.path.join(folder, _DICT_FILE), "rb") as file:
                    from raygo import cloudpickle

                    self.load_checkpoint(cloudpickle.loads(file.read()))
            else:
                self.load_checkpoint(folder)
        self._resume_counters(state)

    def _resume_counters(self, state: dict[str, Any]) -> None:
        self._iteration = state.get("iteration", 0)
        self._time_total = state.get("time_total", 0.0)
        self._timesteps_total = state.get("timesteps_total")
        self._episodes_total = state.get("episodes_total")
        self._since_restore, self._time_since_restore, self._timesteps_since_restore = 0, 0.0, 0

    def get_state(self) -> dict[str, Any]:
        """The counters that a checkpoint keeps."""
        return {"iteration": self._iteration, "time_total": self._time_total, "timesteps_total": self._timesteps_total,
                "episodes_total": self._episodes_total}

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        """Become another trial with this config, through `reset_config`."""
        self._resume_counters({})
        self._last_result = None
        self._logdir = None
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        return True

    def stop(self) -> None:
        """End, through `cleanup`."""
        self.cleanup()
        if self._logdir is not None:
            shutil.rmtree(self._logdir, ignore_errors=True)

    # ---- what it may ask

    @property
    def logdir(self) -> str:
        """The trial's folder on this machine."""
        if self._trial is not None:
            return self._trial.folder
        if self._logdir is None:
            self._logdir = tempfile.mkdtemp(prefix="trainable_")
        return self._logdir

    @property
    def trial_id(self) -> str:
        """The trial's id; "default" outside of a trial."""
        return str(self._trial.storage.trial_id) if self._trial is not None else "default"

    @property
    def trial_name(self) -> str:
        """The trial's name; "default" outside of a trial."""
        return str(self._trial.storage.trial_name) if self._trial is not None else "default"

    @property
    def trial_resources(self) -> Any:
        """What the trial reserves; None outside of a trial."""
        return self._trial.resources if self._trial is not None else None

    @property
    def iteration(self) -> int:
        """How many steps there were."""
        return self._iteration

    training_iteration = iteration

    def get_config(self) -> dict[str, Any]:
        """The config."""
        return self.config

    def get_current_ip_pid(self) -> tuple[str, int]:
        """Where this runs."""
        return self._local_ip, os.getpid()

    def is_actor(self) -> bool:
        """Whether this is an actor's process."""
        import raygo

        return raygo.is_initialized() and raygo.get_runtime_context().get_actor_id() is not None


def _node_ip() -> str:
    import raygo

    return str(raygo.util.get_node_ip_address())
