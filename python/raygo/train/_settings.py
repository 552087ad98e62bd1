"""What a user says about a run: how many workers, where results go, what to do about failures."""
from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from raygo.train._files import resolve

if TYPE_CHECKING:
    from raygo.train._storage import StorageContext

_UNSET = "DEPRECATED"        # Ray's mark for parameters that it does not take any more


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool)


class PlacementGroupFactory:
    """The bundles of a placement group, before there is one.

    Parameters
    ----------
    bundles : list of dict
        The first is for what coordinates the others.
    strategy : str
        As for `raygo.util.placement_group`.
    """

    def __init__(self, bundles: list[dict[str, float]], strategy: str = "PACK", *args: Any, **kwargs: Any) -> None:
        if not bundles:
            raise ValueError("Cannot initialize a PlacementGroupFactory with zero bundles.")
        self._bundles = [{k: float(v) for k, v in bundle.items() if v} for bundle in bundles]
        self._strategy = strategy

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The bundles, those that need nothing left out."""
        return [dict(bundle) for bundle in self._bundles if bundle]

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the first bundle needs nothing."""
        return not self._bundles[0]

    @property
    def head_cpus(self) -> float:
        """CPUs of the first bundle."""
        return self._bundles[0].get("CPU", 0.0)

    @property
    def strategy(self) -> str:
        """The placement strategy."""
        return self._strategy

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for key, amount in bundle.items():
                total[key] = total.get(key, 0.0) + amount
        return total

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from raygo.util.placement_group import placement_group

        return placement_group(self.bundles, self._strategy, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and (self._bundles, self._strategy) == (other._bundles, other._strategy)

    def __hash__(self) -> int:
        return hash((self._strategy, tuple(tuple(sorted(b.items())) for b in self._bundles)))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self._bundles!r}, strategy={self._strategy!r})"


@dataclass
class ScalingConfig:
    """How many workers, and what each needs.

    Parameters
    ----------
    num_workers : int or (int, int)
        One process each.  With ``(least, most)`` a run starts, and after a failure starts again, with as many as there are free resources for.
        0: the training function is called here, in the driver, which makes it easy to debug.
    use_gpu : bool
        A GPU for each worker, unless `resources_per_worker` says how much.
    resources_per_worker : dict, optional
        ``{"CPU": 1}`` by default.
    placement_strategy : str
        How workers are spread over machines; see `raygo.util.placement_group`.
    accelerator_type : str, optional
        One of `raygo.util.accelerators`.
    label_selector : optional
        Not there yet in raygo.
    trainer_resources : dict, optional
        For the process that coordinates the workers.  In raygo that is the driver, which needs none.

    Examples
    --------
    >>> ScalingConfig(num_workers=4, use_gpu=True).total_resources
    {'CPU': 4.0, 'GPU': 4.0}
    """

    trainer_resources: dict[str, float] | None = None
    num_workers: Any = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: Any = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0

    def __post_init__(self) -> None:
        if self.use_tpu or self.topology:
            raise NotImplementedError("ScalingConfig(use_tpu=..., topology=...): raygo.train knows no TPUs")
        if self._has_domains:
            return        # a search makes another one for each trial
        bounds = self.num_workers if isinstance(self.num_workers, (tuple, list)) else (self.num_workers, self.num_workers)
        if len(bounds) != 2 or not all(_is_whole(n) and n >= self.elasticity_enabled for n in bounds) or bounds[0] > bounds[1]:
            raise ValueError(f"ScalingConfig: num_workers is {self.num_workers!r}: give a whole number, 0 to train in the driver, or (least, most)")
        if isinstance(self.label_selector, list) and len(self.label_selector) != self.max_workers:
            raise ValueError("If `label_selector` is a list, it must be the same length as `num_workers`: it has "
                             f"{len(self.label_selector)} entries for {self.max_workers} workers")
        if self.label_selector:
            raise NotImplementedError("ScalingConfig(label_selector=...) is not there yet in raygo")
        if self.placement_strategy not in ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"):
            raise ValueError(f"ScalingConfig: placement_strategy is {self.placement_strategy!r}: give PACK, SPREAD, STRICT_PACK or STRICT_SPREAD")
        if self.elastic_resize_monitor_interval_s <= 0:
            raise ValueError(f"ScalingConfig: elastic_resize_monitor_interval_s is {self.elastic_resize_monitor_interval_s}: give more than 0")
        wanted = self.resources_per_worker or {}
        for key, amount in wanted.items():
            if amount < 0:
                raise ValueError(f"ScalingConfig: resources_per_worker[{key!r}] is {amount}: give an amount that is not negative")
        if not self.use_gpu and wanted.get("GPU", 0) > 0:
            raise ValueError("`use_gpu` is False but `GPU` was found in `resources_per_worker`. "
                             "Either set `use_gpu` to True or remove `GPU` from `resources_per_worker`.")
        if self.use_gpu and "GPU" in wanted and not wanted["GPU"]:
            raise ValueError("`use_gpu` is True but `GPU` is set to 0 in `resources_per_worker`. "
                             "Either set `use_gpu` to False or request a positive number of `GPU`s.")

    @property
    def _has_domains(self) -> bool:
        """Whether it is part of a search space."""
        tune = sys.modules.get("raygo.tune.search.variant_generator")
        return tune is not None and bool(tune.has_unresolved(vars(self)))

    @property
    def _per_worker(self) -> dict[str, float]:
        wanted = dict(self.resources_per_worker) if self.resources_per_worker is not None else {"CPU": 1.0}
        if self.use_gpu:
            wanted.setdefault("GPU", 1.0)
        if self.accelerator_type:
            wanted.setdefault(f"accelerator_type:{self.accelerator_type}", 0.001)
        return {key: float(amount) for key, amount in wanted.items() if amount}

    @property
    def _worker_bundle(self) -> dict[str, float]:
        """What each worker reserves; something even where the user asked for nothing, as a bundle cannot be empty."""
        return self._per_worker or {"CPU": 0.0001}

    @property
    def total_resources(self) -> dict[str, float]:
        """What the whole run needs."""
        total = {key: float(amount) for key, amount in (self.trainer_resources or {}).items()}
        for key, amount in self._per_worker.items():
            total[key] = total.get(key, 0.0) + amount * self.max_workers
        return total

    @property
    def num_cpus_per_worker(self) -> float:
        """CPUs of each worker."""
        return self._per_worker.get("CPU", 0.0)

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs of each worker."""
        return self._per_worker.get("GPU", 0.0)

    @property
    def num_tpus_per_worker(self) -> float:
        """None: raygo.train knows no TPUs."""
        return 0.0

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What each worker needs besides CPUs and GPUs."""
        return {key: amount for key, amount in self._per_worker.items() if key not in ("CPU", "GPU")}

    @property
    def elasticity_enabled(self) -> bool:
        """Whether the number of workers may change from one start to the next."""
        return isinstance(self.num_workers, (tuple, list))

    @property
    def min_workers(self) -> int:
        """The least number of workers."""
        return int(self.num_workers[0] if self.elasticity_enabled else self.num_workers)

    @property
    def max_workers(self) -> int:
        """The most workers."""
        return int(self.num_workers[1] if self.elasticity_enabled else self.num_workers)

    def as_placement_group_factory(self) -> PlacementGroupFactory:
        """The bundles: one for each worker, the first with what the trainer needs added."""
        bundles = [dict(self._worker_bundle) for _ in range(self.max_workers)] or [{}]
        for key, amount in (self.trainer_resources or {}).items():
            bundles[0][key] = bundles[0].get(key, 0.0) + amount
        return PlacementGroupFactory(bundles, self.placement_strategy)

    @classmethod
    def from_placement_group_factory(cls, pgf: PlacementGroupFactory) -> ScalingConfig:
        """The other way round."""
        bundles = pgf.bundles
        worker = dict(bundles[-1])
        gpu = worker.get("GPU", 0) > 0
        return cls(num_workers=len(bundles), use_gpu=gpu, resources_per_worker=worker, placement_strategy=pgf.strategy)

    def _repr_html_(self) -> str:
        from raygo.widgets import table_html

        return table_html("ScalingConfig", {"num_workers": self.num_workers, "use_gpu": self.use_gpu, "resources_per_worker": self._per_worker,
                                            "placement_strategy": self.placement_strategy})


@dataclass
class FailureConfig:
    """What to do when a worker fails.

    Parameters
    ----------
    max_failures : int
        How often to start again from the last checkpoint; -1: as often as it takes.
    fail_fast : bool or "raise"
        For raygo.tune: end all trials at the first that fails.
    controller_failure_limit : int
        How often to start again when workers cannot be made a group; -1: as `max_failures` says.
    max_preemption_failures, relax_collectives_on_preemption, preemption_grace_s
        Taken for compatibility: a machine that is taken away is a failure like others.
    """

    max_failures: int = 0
    fail_fast: Any = _UNSET
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0

    def __post_init__(self) -> None:
        if not _is_whole(self.max_failures) or self.max_failures < -1:
            raise ValueError(f"FailureConfig: max_failures is {self.max_failures}: give 0 or more, or -1 for no limit")
        if self.fail_fast not in (_UNSET, None, True, False, "raise"):
            raise ValueError(f"FailureConfig: fail_fast is {self.fail_fast!r}: give True, False or 'raise'")
        if self._fails_fast and self.max_failures != 0:
            raise ValueError("FailureConfig: max_failures must be 0 if fail_fast is True or 'raise', as that ends everything at the first failure")

    @property
    def _fails_fast(self) -> bool:
        return self.fail_fast in (True, "raise")


@dataclass
class CheckpointConfig:
    """Which checkpoints to keep.

    Parameters
    ----------
    num_to_keep : int, optional
        How many; all by default.  The newest is always kept.
    checkpoint_score_attribute : str, optional
        The metric by which the best are kept; the newest without it.
    checkpoint_score_order : {"max", "min"}
        Which end of that metric is best.
    checkpoint_frequency, checkpoint_at_end : optional
        For trainers without a training function of the user's (XGBoostTrainer and LightGBMTrainer with `params`): a checkpoint every so many
        rounds, and at the end.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: Any = _UNSET
    checkpoint_at_end: Any = _UNSET

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and not (_is_whole(self.num_to_keep) and self.num_to_keep > 0):
            raise ValueError(f"Received invalid num_to_keep: {self.num_to_keep}. Provide a positive integer or None.")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(f"checkpoint_score_order must be either 'max' or 'min', not {self.checkpoint_score_order!r}")


@dataclass
class SyncConfig:
    """How artifacts reach the storage; they are written there directly, so nothing here changes what happens."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


@dataclass
class LoggingConfig:
    """How much raygo.train says about its own doings."""

    log_level: str = "INFO"


@dataclass
class RunConfig:
    """Where a run's results go, and what else belongs to it.

    Parameters
    ----------
    name : str, optional
        The folder of the run; made of the trainer's name and the time by default.
    storage_path : str, optional
        The folder of all runs, or a URI such as ``s3://bucket/runs``; ``~/ray_results`` by default.
    storage_filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        Where `storage_path` is a path.
    failure_config : FailureConfig, optional
        What to do when a worker fails.
    checkpoint_config : CheckpointConfig, optional
        Which checkpoints to keep.
    callbacks : list of UserCallback, optional
        Called in the driver after each report and after failures.
    worker_runtime_env : dict, optional
        Runtime environment of the workers.
    stop : dict or callable, optional
        When it is enough: ``{"epoch": 10}``, or a function of the trial's id and a report.
    verbose : int
        0: nothing is shown; 1: a table, or where it cannot be drawn a line now and then; 2: a line for each report.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    callbacks: list[Any] | None = None
    worker_runtime_env: dict[str, Any] | None = None
    logging_config: LoggingConfig | None = None
    sync_config: Any = _UNSET
    verbose: Any = _UNSET
    stop: Any = _UNSET
    progress_reporter: Any = _UNSET
    log_to_file: Any = _UNSET

    def __post_init__(self) -> None:
        check_run_config(self)
        if self.stop not in (_UNSET, None) and not isinstance(self.stop, dict) and not callable(self.stop):
            raise ValueError(f"RunConfig: stop is a {type(self.stop).__name__}: give a dict of metrics and their limits, or a function")
        from raygo.train._callbacks import UserCallback

        for callback in self.callbacks or []:
            if not isinstance(callback, UserCallback) and not hasattr(callback, "on_trial_result"):
                raise ValueError(f"RunConfig: callbacks has a {type(callback).__name__}: give instances of raygo.train.UserCallback or raygo.tune.Callback")

    @property
    def storage_context(self) -> StorageContext:
        """Where the run is stored, or would be; without a name, in a folder of that of all runs."""
        from raygo.train._storage import StorageContext

        return StorageContext(self.storage_path, self.name or "", storage_filesystem=self.storage_filesystem, read_only=True)


def check_run_config(config: Any) -> None:
    """What a RunConfig of Train and one of Tune must both be."""
    if config.storage_filesystem is not None and config.storage_path is None:
        raise ValueError("RunConfig: storage_filesystem is given without storage_path: give a path on it")
    if config.storage_path is not None:
        if not isinstance(config.storage_path, (str, os.PathLike)):
            raise ValueError(f"RunConfig: storage_path is a {type(config.storage_path).__name__}: give a folder, or a URI such as s3://bucket/runs")
        resolve(config.storage_path, config.storage_filesystem)       # what cannot be understood fails here
    for given, kind, name in ((config.failure_config, FailureConfig, "failure_config"), (config.checkpoint_config, CheckpointConfig, "checkpoint_config")):
        if given is not None and not isinstance(given, kind):
            raise ValueError(f"RunConfig: {name} is a {type(given).__name__}: give a {kind.__name__}")
