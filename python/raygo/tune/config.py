"""What a user says about a search's trials: those of raygo.train's settings that mean something else, or more, here."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raygo import train
from raygo.train._settings import check_run_config
from raygo.tune.error import TuneError

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig"]


@dataclass
class CheckpointConfig(train.CheckpointConfig):
    """Which checkpoints of a trial to keep, and when a class is asked for one.

    Parameters
    ----------
    num_to_keep : int, optional
        How many; all by default.  The newest is always kept.
    checkpoint_score_attribute : str, optional
        The metric by which the best are kept; the newest without it.
    checkpoint_score_order : {"max", "min"}
        Which end of that metric is best.
    checkpoint_frequency : int
        Every how many results a `Trainable` is asked for a checkpoint; 0: never.  Functions make theirs with `report`.
    checkpoint_at_end : bool, optional
        Whether a `Trainable` is asked for one at its end.
    """

    checkpoint_frequency: Any = 0
    checkpoint_at_end: Any = None
    _checkpoint_keep_all_ranks: Any = "DEPRECATED"
    _checkpoint_upload_from_workers: Any = "DEPRECATED"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.checkpoint_frequency is None or self.checkpoint_frequency < 0:
            raise ValueError(f"checkpoint_frequency is {self.checkpoint_frequency!r}: give 0 or more")


@dataclass
class FailureConfig(train.FailureConfig):
    """What to do when a trial fails.

    Parameters
    ----------
    max_failures : int
        How often to start it again from its last checkpoint; -1: as often as it takes.
    fail_fast : bool or "raise"
        Stop all trials when one has failed for good; "raise" raises its error.
    """

    fail_fast: Any = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f"fail_fast must be one of {{bool, 'raise'}}. Got {self.fail_fast!r}.")
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(f"max_failures must be 0 if fail_fast={self.fail_fast!r}: a trial that may fail is no reason to stop the others")


@dataclass
class RunConfig:
    """Where a search's results go, and what else belongs to it.

    Parameters
    ----------
    name : str, optional
        The folder of the search; made of the trainable's name and the time by default.
    storage_path : str, optional
        The folder of all searches, or a URI such as ``s3://bucket/runs``; ``~/ray_results`` by default.
    storage_filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        Where `storage_path` is a path.
    failure_config : FailureConfig, optional
        What to do when a trial fails.
    checkpoint_config : CheckpointConfig, optional
        Which checkpoints to keep.
    sync_config : SyncConfig, optional
        How artifacts reach the storage.
    verbose : int, optional
        0: nothing is shown; 1: a table now and then; 2: each result too.
    stop : dict, callable or Stopper, optional
        When a trial has run long enough: ``{"training_iteration": 10}``, a function of trial_id and result, or a Stopper.
    callbacks : list of Callback, optional
        Called in the driver at what trials do.
    progress_reporter : ProgressReporter, optional
        Shows the search in the place of raygo's own.
    log_to_file : bool, str or pair of str
        Write what trials print into files of their folders.
    """

    name: str | None = None
    storage_path: str | None = None
    storage_filesystem: Any = None
    failure_config: Any = None
    checkpoint_config: Any = None
    sync_config: Any = None
    verbose: Any = None
    stop: Any = None
    callbacks: list[Any] | None = None
    progress_reporter: Any = None
    log_to_file: Any = False
    local_dir: str | None = None

    def __post_init__(self) -> None:
        from raygo.tune.callback import Callback

        if self.local_dir is not None:
            raise ValueError("RunConfig(local_dir=...) is storage_path now")
        check_run_config(self)
        if not isinstance(self.callbacks, (list, tuple, type(None))):
            raise TuneError(f"RunConfig(callbacks={self.callbacks!r}): give a list of instances of raygo.tune.Callback")
        for callback in self.callbacks or []:
            if not isinstance(callback, Callback):
                raise TuneError(f"RunConfig(callbacks=[{type(callback).__name__}]): give instances of raygo.tune.Callback")
