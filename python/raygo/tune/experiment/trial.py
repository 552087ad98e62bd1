"""One trial: its config, its state, what it has reported."""
from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import re
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raygo.tune.experiment.trace import MetricTrace, flat_numbers
from raygo.tune.result import EXPR_ERROR_FILE, EXPR_ERROR_PICKLE_FILE, TRAINING_ITERATION

if TYPE_CHECKING:
    from raygo.train import Checkpoint, CheckpointConfig
    from raygo.train._settings import PlacementGroupFactory

__all__ = ["ExportFormat", "MetricTrace", "Trial"]

DEBUG_PRINT_INTERVAL = 5
TRIAL_STATE_FILENAME = "trial_metadata.json"

log = logging.getLogger("raygo.tune")

# A folder's name may have 255 bytes; the time is appended to this.
_LONGEST_NAME = int(os.environ.get("TUNE_MAX_LEN_IDENTIFIER", "130"))
# Of a trial's state as JSON: what it was made of, and what has happened since.
_MADE_OF = ("trainable_name", "trial_id", "evaluated_params", "experiment_tag", "relative_logdir", "custom_trial_name", "stopping_criterion", "status")
_SINCE = ("start_time", "num_failures", "num_failures_after_restore", "error_text", "node_ip", "checkpoints_made", "resources_changed")


class ExportFormat:
    """What `Trainable.export_model` may be asked for."""

    CHECKPOINT = "checkpoint"
    MODEL = "model"
    ONNX = "onnx"
    H5 = "h5"

    @staticmethod
    def validate(formats: list[str]) -> None:
        """Refuse names that are none of these."""
        for i, name in enumerate(formats):
            formats[i] = name.strip().lower()
            if formats[i] not in ("checkpoint", "model", "onnx", "h5"):
                raise ValueError(f"Unsupported import/export format: {formats[i]}; there are checkpoint, model, onnx, h5")


class Trial:
    """One configuration and what came of it.

    Attributes
    ----------
    config : dict
        What the trainable is called with.
    evaluated_params : dict
        The part of it that was searched, by path.
    status : str
        PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
    last_result : dict
        The last report.
    checkpoint : Checkpoint
        The newest checkpoint, or None.
    local_path : str
        The trial's folder on this machine; where the storage is elsewhere, its files are copied there.
    path : str
        The trial's folder on the storage.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    def __init__(self, trainable_name: str, *, config: dict[str, Any] | None = None, trial_id: str | None = None, storage: Any = None,
                 evaluated_params: dict[str, Any] | None = None, experiment_tag: str = "",
                 placement_group_factory: PlacementGroupFactory | None = None, stopping_criterion: dict[str, float] | None = None,
                 checkpoint_config: CheckpointConfig | None = None, export_formats: list[str] | None = None, restore_path: str | None = None,
                 trial_name_creator: Callable[[Trial], str] | None = None, trial_dirname_creator: Callable[[Trial], str] | None = None,
                 log_to_file: Any = None, max_failures: int = 0, stub: bool = False, _setup_default_resource: bool = True) -> None:
        self.trainable_name = trainable_name
        self.stub = stub
        self.trial_id = trial_id or self.generate_id()
        self.config: dict[str, Any] = config or {}
        self.evaluated_params: dict[str, Any] = evaluated_params or {}
        self.experiment_tag = experiment_tag
        self.placement_group_factory = placement_group_factory
        self.resources_changed = False      # by a scheduler: they are not what the trainable asks for
        self.stopping_criterion: dict[str, float] = stopping_criterion or {}
        self.checkpoint_config = checkpoint_config
        self.export_formats = export_formats
        self.restore_path = restore_path
        self.log_to_file = log_to_file
        self.max_failures = max_failures
        self.storage = storage
        self.status = Trial.PENDING
        self.start_time: float | None = None
        self.last_result: dict[str, Any] = {}
        self.metric_analysis: dict[str, MetricTrace] = {}
        self.checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = []   # those that are kept, each with its report
        self.checkpoints_made = 0
        self.num_failures = 0
        self.num_failures_after_restore = 0
        self.error_text: str | None = None
        self.error: BaseException | None = None
        self.node_ip: str | None = None
        self.invalid_config: str | None = None
        self.checkpoint_asked = False
        self.relative_logdir: str | None = None
        self.custom_trial_name: str | None = None
        self._trial_dirname_creator = trial_dirname_creator
        if trial_name_creator is not None:
            self.custom_trial_name = trial_name_creator(self)

    @classmethod
    def generate_id(cls) -> str:
        """A fresh id."""
        return uuid.uuid4().hex[:8]

    # ---- names and folders

    def __str__(self) -> str:
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    __repr__ = __str__

    def _dirname(self) -> str:
        if self._trial_dirname_creator is not None:
            name = self._trial_dirname_creator(self)
            if not name or os.sep in name:
                raise ValueError(f"trial_dirname_creator gave {name!r} for {self}: give the name of a folder, not a path")
            return name
        base = re.sub(r"[^\w\-.,=+@]", "_", f"{self}_{self.experiment_tag}".rstrip("_"))
        short = base.encode()[:_LONGEST_NAME].decode(errors="ignore")
        if short != base and self.trial_id not in short:         # what tells it from the others may be in what was cut off
            short += f"_{self.trial_id}"
        return f"{short}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"

    def init_local_path(self) -> None:
        """Make the trial's folder."""
        if self.relative_logdir is None:
            self.relative_logdir = self._dirname()
        os.makedirs(self.local_path, exist_ok=True)

    init_logdir = init_local_path

    @property
    def local_path(self) -> str:
        """The trial's folder on this machine."""
        if self.relative_logdir is None:
            self.relative_logdir = self._dirname()
        return f"{self.storage.local_path}/{self.relative_logdir}"

    logdir = local_dir = local_path

    @property
    def path(self) -> str:
        """The trial's folder on the storage."""
        if self.relative_logdir is None:
            self.relative_logdir = self._dirname()
        return os.path.join(self.remote_experiment_path, self.relative_logdir)

    @property
    def local_experiment_path(self) -> str:
        """The experiment's folder on this machine."""
        return str(self.storage.local_path)

    @property
    def remote_experiment_path(self) -> str:
        """The experiment's folder on the storage."""
        return str(self.storage.path)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's folder."""
        return str(self.storage.name)

    # ---- what has been reported

    def update_last_result(self, result: dict[str, Any]) -> None:
        """Take a report in."""
        self.last_result = result
        for key, value in flat_numbers(result):
            trace = self.metric_analysis.get(key)
            if trace is None:
                trace = self.metric_analysis[key] = MetricTrace()
            trace.add(value)

    @property
    def has_reported_at_least_once(self) -> bool:
        """Whether there is a report."""
        return bool(self.last_result)

    @property
    def metric_n_steps(self) -> dict[str, dict[str, deque[float]]]:
        """The last 5 and 10 values of each metric."""
        return {key: {str(n): deque(list(trace._recent)[-n:], maxlen=n) for n in (5, 10)} for key, trace in self.metric_analysis.items()}

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self.checkpoints[-1][0] if self.checkpoints else None

    @property
    def latest_checkpoint_result(self) -> Any:
        """The newest checkpoint with its report, as ``(checkpoint, metrics)``."""
        return self.checkpoints[-1] if self.checkpoints else None

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self.checkpoints)

    @property
    def checkpoint_at_end(self) -> bool:
        """Whether a class is asked for a checkpoint when it ends."""
        return bool(getattr(self.checkpoint_config, "checkpoint_at_end", None) is True)

    @property
    def checkpoint_freq(self) -> int:
        """Every how many reports a class is asked for a checkpoint."""
        frequency = getattr(self.checkpoint_config, "checkpoint_frequency", 0)
        return frequency if isinstance(frequency, int) else 0

    def should_stop(self, result: dict[str, Any], told: set[str] | None = None) -> bool:
        """Whether the report, a flat one, meets a criterion of `stop`.

        One that the report does not have may be in others, as a metric that is seldom measured; it is said that it is missing, and
        noted in `told`, unless it is there already.
        """
        if result.get("done"):
            return True
        for name, limit in self.stopping_criterion.items():
            value = result.get(name)
            if value is not None and value >= limit:
                return True
            if value is None and (told is None or name not in told):
                if told is not None:
                    told.add(name)
                log.warning("Stopping criterion %r not found in result dict! Available keys are %s. If %r is never reported, %s runs to its end.",
                            name, sorted(map(str, result)), name, self)
        return False

    # ---- state

    def get_json_state(self) -> tuple[str, str]:
        """The trial as it is, as text: what it was made of, and what has happened since.

        Values that JSON does not know are pickled in it.
        """
        made = {"config": self.config, "resources": self.placement_group_factory, "max_failures": self.max_failures,
                "checkpoint_config": self.checkpoint_config, "storage": self.storage}
        plain = {key: getattr(self, key) for key in _MADE_OF}
        since = {key: getattr(self, key) for key in _SINCE}
        return (json.dumps({**plain, "pickled": _text(made)}),
                json.dumps({**since, "pickled": _text({key: getattr(self, key) for key in ("last_result", "metric_analysis", "checkpoints")})}))

    @classmethod
    def from_json_state(cls, json_state: str | tuple[str, str], stub: bool = False) -> Trial:
        """The trial of what `get_json_state` returned, or of its first part."""
        first, second = (json_state, None) if isinstance(json_state, str) else json_state
        plain = json.loads(first)
        made = _of_text(plain.pop("pickled"))
        trial = cls(plain["trainable_name"], config=made["config"], trial_id=plain["trial_id"], storage=made["storage"], stub=stub,
                    placement_group_factory=made["resources"], max_failures=made["max_failures"], checkpoint_config=made["checkpoint_config"])
        since = json.loads(second) if second is not None else {}
        for key, value in {**plain, **_of_text(since.pop("pickled", None)), **since}.items():
            setattr(trial, key, value)
        return trial

    def get_trainable_cls(self) -> Any:
        """The Trainable that is registered under the trial's name; None for a stub."""
        from raygo.tune.registry import get_trainable_cls

        return None if self.stub else get_trainable_cls(self.trainable_name)

    def get_ray_actor_ip(self) -> str | None:
        """The address of the machine that the trial runs on, or ran on."""
        return self.node_ip

    def should_checkpoint(self) -> bool:
        """Whether a class is asked for a checkpoint after its last report."""
        if self.last_result.get("done") and self.checkpoint_at_end:
            return True
        return self.checkpoint_freq > 0 and self.last_result.get(TRAINING_ITERATION, 0) % self.checkpoint_freq == 0

    def checkpoint_now(self) -> None:
        """Ask a class for a checkpoint after this report; for callbacks.  A function makes its checkpoints itself."""
        self.checkpoint_asked = True

    def set_storage(self, new_storage: Any) -> None:
        """The trial's experiment is elsewhere now."""
        self.storage = new_storage

    def update_resources(self, resources: Any) -> None:
        """Other resources, for the next start."""
        from raygo.tune.trainable.util import as_placement_group_factory

        if self.status == Trial.RUNNING:
            raise ValueError(f"{self} runs: its resources can be changed when it is paused")
        self.placement_group_factory = as_placement_group_factory(resources)
        self.resources_changed = True

    def set_status(self, status: str) -> None:
        """PENDING, RUNNING, ..."""
        if status == Trial.RUNNING and self.start_time is None:
            self.start_time = time.time()
        self.status = status
        if status in (Trial.TERMINATED, Trial.ERROR):
            for trace in self.metric_analysis.values():
                trace.compact()

    def is_finished(self) -> bool:
        """Whether it will not run again."""
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def set_config(self, config: dict[str, Any]) -> None:
        """Another config, for the next start."""
        self.config = config

    def set_experiment_tag(self, tag: str) -> None:
        """What stands in the folder's name."""
        self.experiment_tag = tag

    def should_recover(self) -> bool:
        """Whether it may fail once more."""
        return self.max_failures < 0 or self.num_failures <= self.max_failures

    def get_error(self) -> BaseException | None:
        """Why it failed."""
        if self.error is None and self.status == Trial.ERROR:
            from raygo import cloudpickle

            try:
                with open(os.path.join(self.local_path, EXPR_ERROR_PICKLE_FILE), "rb") as file:
                    self.error = cloudpickle.loads(file.read())
            except Exception:        # the file has gone, or what it names cannot be imported here
                from raygo.tune.error import TuneError

                self.error = TuneError(self.error_text or f"{self} failed; see {self.path}")
        return self.error

    get_pickled_error = get_error

    @property
    def error_file(self) -> str | None:
        """error.txt, once there is an error."""
        return os.path.join(self.local_path, EXPR_ERROR_FILE) if self.error_text else None

    @property
    def pickled_error_file(self) -> str | None:
        """error.pkl, once there is an error."""
        return os.path.join(self.local_path, EXPR_ERROR_PICKLE_FILE) if self.error_text else None

    def handle_error(self, error: BaseException, text: str) -> None:
        """Count a failure and write it down; `text` is what people read."""
        from raygo import cloudpickle

        self.num_failures += 1
        self.num_failures_after_restore += 1
        self.error_text = text
        with open(os.path.join(self.local_path, EXPR_ERROR_FILE), "a") as file:
            file.write(f"Failure # {self.num_failures} (occurred at {time.strftime('%Y-%m-%d_%H-%M-%S')})\n{text}\n")
        try:
            data = cloudpickle.dumps(error)
        except Exception:
            data = cloudpickle.dumps(RuntimeError(text))
        with open(os.path.join(self.local_path, EXPR_ERROR_PICKLE_FILE), "wb") as raw:
            raw.write(data)
        self.error = error

    def reset(self) -> Trial:
        """The same trial, as if it had never run."""
        fresh = Trial(self.trainable_name, config=self.config, evaluated_params=self.evaluated_params, experiment_tag=self.experiment_tag,
                      storage=self.storage, placement_group_factory=self.placement_group_factory, stopping_criterion=self.stopping_criterion,
                      checkpoint_config=self.checkpoint_config, export_formats=self.export_formats, log_to_file=self.log_to_file,
                      max_failures=self.max_failures, trial_dirname_creator=self._trial_dirname_creator)
        fresh.custom_trial_name = self.custom_trial_name
        return fresh


def _text(value: Any) -> str:
    from raygo.tune.utils.pickling import dumps

    return base64.b64encode(dumps(value)).decode()


def _of_text(text: str | None) -> Any:
    return {} if text is None else pickle.loads(base64.b64decode(text))
