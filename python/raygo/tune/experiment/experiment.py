"""What is searched: a trainable, its space, how often, and what each trial is given."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from raygo.tune.error import BadArgument, TuneError
from raygo.tune.experiment.trial import Trial
from raygo.tune.search.variant_generator import _copy
from raygo.tune.stopper import CombinedStopper, FunctionStopper, Stopper, TimeoutStopper
from raygo.tune.trainable.function_trainable import FunctionTrainable

__all__ = ["Experiment"]


class Experiment:
    """A search, before it is run; see `raygo.tune.run` for the parameters.

    Examples
    --------
    >>> experiment = Experiment("mine", train, config={"lr": uniform(0, 1)}, num_samples=4)    # doctest: +SKIP
    """

    PUBLIC_KEYS = {"stop", "num_samples", "time_budget_s"}

    def __init__(self, name: str | None, run: Any, *, stop: Any = None, time_budget_s: Any = None, config: dict[str, Any] | None = None,
                 resources_per_trial: Any = None, num_samples: int = 1, storage_path: str | None = None, storage_filesystem: Any = None,
                 sync_config: Any = None, checkpoint_config: Any = None, trial_name_creator: Callable[[Trial], str] | None = None,
                 trial_dirname_creator: Callable[[Trial], str] | None = None, log_to_file: Any = False, export_formats: Any = None,
                 max_failures: int = 0, restore: str | None = None, local_dir: str | None = None) -> None:
        from raygo.train._trial import opened
        from raygo.tune.trainable.util import as_placement_group_factory, name_of

        if not isinstance(config or {}, dict):
            raise ValueError(f"the search space is a {type(config).__name__}: give a dict")
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or (num_samples < 1 and num_samples != -1):
            raise ValueError(f"num_samples is {num_samples!r}: give a whole number of 1 or more, or -1 for no end")
        self.trainable = trainable_class(run)
        self.run_identifier: str = name_of(run) if not isinstance(run, Experiment) else run.run_identifier
        self.name = name
        self.config: dict[str, Any] = opened(config or {})
        self.num_samples = num_samples
        self.resources_per_trial = as_placement_group_factory(resources_per_trial)
        self.checkpoint_config = checkpoint_config
        self._check_checkpoints(run)
        self.storage_path = storage_path if storage_path is not None else local_dir
        self.storage_filesystem = storage_filesystem
        self.sync_config = sync_config
        self.trial_name_creator = trial_name_creator
        self.trial_dirname_creator = trial_dirname_creator
        self.log_to_file = log_files(log_to_file)
        self.export_formats = export_formats
        self.max_failures = max_failures
        self.restore = restore
        self.stopping_criterion, self.stopper = stopping(stop, time_budget_s)
        self.storage: Any = None              # set when the search starts
        self._one_cpu: Any = None             # thousands of trials share it

    def _check_checkpoints(self, run: Any) -> None:
        """A function is not asked for checkpoints: it reports them."""
        config = self.checkpoint_config
        if config is None or not issubclass(self.trainable, FunctionTrainable) or hasattr(run, "fit") or hasattr(run, "_trainer"):
            return
        for name in ("checkpoint_at_end", "checkpoint_frequency"):
            if getattr(config, name) not in (None, False, 0, "DEPRECATED"):
                raise BadArgument(f"{name} is for Trainable classes: the function {self.run_identifier} makes its checkpoints itself, by "
                                  "raygo.tune.report(metrics, checkpoint=...)")

    @classmethod
    def from_json(cls, name: str, spec: dict[str, Any]) -> Experiment:
        """An experiment from a dict: ``run`` and parameters of this class."""
        if "run" not in spec:
            raise TuneError("No trainable specified: the spec needs a key 'run'.")
        spec = dict(spec)
        if "env" in spec:
            spec["config"] = {**spec.get("config", {}), "env": spec.pop("env")}
        unknown = sorted(spec.keys() - inspect.signature(cls.__init__).parameters.keys() - {"run"})
        if unknown:
            raise TuneError(f"the spec of {name} has {', '.join(unknown)}, which an Experiment does not take")
        return cls(name, spec.pop("run"), **spec)

    @classmethod
    def get_trainable_name(cls, run_object: Any) -> str:
        """What trials are called."""
        from raygo.tune.trainable.util import name_of

        return name_of(run_object)

    @classmethod
    def register_if_needed(cls, run_object: Any) -> str:
        """Register a trainable under its name."""
        from raygo.tune.registry import register_trainable

        name = cls.get_trainable_name(run_object)
        if not isinstance(run_object, str):
            register_trainable(name, run_object)
        return name

    @property
    def path(self) -> str | None:
        """The experiment's folder on the storage."""
        return self.storage.path if self.storage is not None else None

    remote_path = checkpoint_dir = path

    @property
    def local_path(self) -> str | None:
        """The experiment's folder on this machine."""
        return self.storage.local_path if self.storage is not None else None

    local_dir = local_path

    @property
    def public_spec(self) -> dict[str, Any]:
        """What searchers and schedulers may know."""
        return {"num_samples": self.num_samples, "stop": self.stopping_criterion}

    def space_copy(self) -> dict[str, Any]:
        """The space, to be filled in."""
        return _copy(self.config)  # type: ignore[no-any-return]

    constants = space_copy

    def make_trial(self, config: dict[str, Any], evaluated: dict[str, Any], trial_id: str, tag: str) -> Trial:
        """A trial of it."""
        trial = Trial(self.run_identifier, config=config, trial_id=trial_id, storage=self.storage, evaluated_params=evaluated, experiment_tag=tag,
                      stopping_criterion=self.stopping_criterion, checkpoint_config=self.checkpoint_config, export_formats=self.export_formats,
                      log_to_file=self.log_to_file, max_failures=self.max_failures, trial_name_creator=self.trial_name_creator,
                      trial_dirname_creator=self.trial_dirname_creator, restore_path=self.restore)
        trial.placement_group_factory = self.resources_for(config)
        return trial

    def resources_for(self, config: dict[str, Any]) -> Any:
        """The bundles of a trial."""
        from raygo.train._settings import PlacementGroupFactory
        from raygo.tune.trainable.util import as_placement_group_factory

        wanted = self.resources_per_trial or as_placement_group_factory(self.trainable.default_resource_request(config))
        if wanted is None:
            if self._one_cpu is None:
                self._one_cpu = PlacementGroupFactory([{"CPU": 1}])
            return self._one_cpu
        return wanted


def trainable_class(run: Any) -> Any:
    """A trainable in any of its forms as a class."""
    from raygo.tune.registry import get_trainable_cls
    from raygo.tune.trainable import Trainable, wrap_function
    from raygo.tune.trainable.util import name_of

    if isinstance(run, Experiment):
        return run.trainable
    if isinstance(run, str):
        return get_trainable_cls(run)
    if isinstance(run, type) and issubclass(run, Trainable):
        return run
    if hasattr(run, "fit") and hasattr(run, "as_trainable"):
        function = run.as_trainable()
        if (wanted := getattr(run, "_tune_resources", None)) is not None:
            function._resources = wanted
        cls = wrap_function(function, name_of(run))
        cls.preload = tuple(getattr(getattr(run, "_backend_config", None), "preload", ()))
        return cls
    if callable(run):
        return wrap_function(run, name_of(run))
    raise TuneError(f"the trainable is a {type(run).__name__}: give a function, a Trainable class, a trainer, or the name of a registered one")


def stopping(stop: Any, time_budget_s: Any) -> tuple[dict[str, float], Stopper | None]:
    """What `stop` says, as limits of metrics and as a stopper."""
    limits: dict[str, float] = {}
    stoppers: list[Stopper] = []
    if stop is None:
        pass
    elif isinstance(stop, dict):
        for name, limit in stop.items():
            if not hasattr(limit, "__le__") or isinstance(limit, (dict, str)):
                raise BadArgument(f"stop={{{name!r}: {limit!r}}}: give a number; a metric within another is named by its path, as 'a/b'")
        limits = dict(stop)
    elif isinstance(stop, Stopper):
        stoppers.append(stop)
    elif isinstance(stop, list) and all(isinstance(s, Stopper) for s in stop):
        stoppers.extend(stop)
    elif callable(stop):
        if not FunctionStopper.is_valid_function(stop):
            raise BadArgument(f"stop={stop!r}: the function is called with trial_id and result")
        stoppers.append(FunctionStopper(stop))
    else:
        raise BadArgument(f"stop is a {type(stop).__name__}: give a dict of metrics and limits, a function of trial_id and result, or a Stopper")
    if time_budget_s is not None:
        stoppers.append(TimeoutStopper(time_budget_s))
    return limits, (CombinedStopper(*stoppers) if len(stoppers) > 1 else stoppers[0] if stoppers else None)


def log_files(log_to_file: Any) -> tuple[str, str] | None:
    """The names of the files for stdout and stderr."""
    if not log_to_file:
        return None
    if log_to_file is True:
        return "stdout", "stderr"
    if isinstance(log_to_file, str):
        return log_to_file, log_to_file
    if isinstance(log_to_file, (list, tuple)) and len(log_to_file) == 2:
        return str(log_to_file[0]), str(log_to_file[1])
    raise ValueError(f"log_to_file is {log_to_file!r}: give True, a file name, or a pair of them for stdout and stderr")


def _convert_to_experiment_list(experiments: Any) -> list[Experiment]:
    if experiments is None:
        return []
    if isinstance(experiments, Experiment):
        return [experiments]
    if isinstance(experiments, dict):
        return [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    if isinstance(experiments, list) and all(isinstance(e, Experiment) for e in experiments):
        return experiments
    raise TuneError(f"Invalid argument: {experiments!r}: give an Experiment, a list of them, or a dict of specs by name")
