"""A training worker's side: its place in the group, and how it reports.

`report` copies the checkpoint to the storage and leaves the rest in a mailbox, from which the driver takes it through
`TrainWorker.next_report`.  It does not wait for other ranks: one that never reports does not hold up those that do.
"""
from __future__ import annotations

import enum
import queue
import warnings
from dataclasses import dataclass, field
from typing import Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._storage import StorageContext
from raygo.train.error import SessionMisuseError

# Reports that may wait for the driver; a loop that reports faster than it is read is slowed down to it.
_MAILBOX = 256


class CheckpointUploadMode(enum.Enum):
    """How `report` brings a checkpoint to the storage."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def _default_delete_local_checkpoint_after_upload(self) -> bool:
        return False

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        """Whether the local folder is removed afterwards when the caller does not say."""
        return self._default_delete_local_checkpoint_after_upload()


@dataclass
class Place:
    """A worker's place in the group."""

    world_rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    resources: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, Any] = field(default_factory=dict)


@dataclass
class Report:
    """What a rank says at one call of `report`."""

    index: int
    metrics: dict[str, Any]
    uploaded: list[str] | None = None           # the files that this rank brought to the storage
    in_place: Checkpoint | None = None          # the checkpoint is where it stays
    name: str | None = None


class Session:
    """The state of the training function that runs in this process."""

    def __init__(self, place: Place, storage: StorageContext, checkpoint: Checkpoint | None, first_report: int) -> None:
        self.place = place
        self.storage = storage
        self.checkpoint = checkpoint
        self.reports = first_report
        self.mailbox: queue.Queue[Report | None] = queue.Queue(_MAILBOX)

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None, upload: bool, delete: bool) -> None:
        index = self.reports
        self.reports += 1
        said = Report(index, dict(metrics), name=name)
        if checkpoint is not None and upload:
            with checkpoint.as_directory() as folder:
                said.uploaded = self.storage.stage(folder, index, self.place.world_rank, name=name, move=delete)
            if delete:
                import shutil

                shutil.rmtree(checkpoint.path, ignore_errors=True)
        elif checkpoint is not None:
            said.in_place = checkpoint
        self.mailbox.put(said)

    def end(self) -> None:
        """No more reports will come."""
        self.mailbox.put(None)


current: Session | None = None


def _outside(what: str) -> None:
    from raygo.util.debug import log_once

    if log_once(("raygo.train outside", what)):
        warnings.warn(f"raygo.train.{what} does nothing here: it is meant for the training function of a trainer", stacklevel=3)


def report(metrics: dict[str, Any], checkpoint: Checkpoint | None = None, checkpoint_dir_name: str | None = None,
           checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC, delete_local_checkpoint_after_upload: bool | None = None,
           checkpoint_upload_fn: Any = None, validation: Any = False) -> None:
    """Tell the driver how training goes; each worker calls it, and rank 0's metrics are kept.

    Parameters
    ----------
    metrics : dict
        Values of this round.
    checkpoint : Checkpoint, optional
        Files to keep.  Those of all ranks come into one folder; of files with the same name, those of the lowest rank stay.
    checkpoint_dir_name : str, optional
        The folder's name; ``checkpoint_000000`` and so on by default.
    checkpoint_upload_mode : CheckpointUploadMode
        SYNC copies the files; NO_UPLOAD leaves them where they are, which must be a place that stays.
    delete_local_checkpoint_after_upload : bool, optional
        Remove the local folder after it was copied.

    Examples
    --------
    >>> raygo.train.report({"loss": 0.5})                # doctest: +SKIP
    """
    if current is None:
        _outside("report")
        return
    if not isinstance(metrics, dict):
        raise TypeError(f"report takes a dict of metrics, not {type(metrics).__name__}")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"report: checkpoint is a {type(checkpoint).__name__}: give Checkpoint.from_directory(folder)")
    if checkpoint_upload_mode is CheckpointUploadMode.ASYNC:
        raise NotImplementedError("report(checkpoint_upload_mode=ASYNC) is not there yet in raygo.train: use SYNC")
    if checkpoint_upload_fn is not None:
        raise NotImplementedError("report(checkpoint_upload_fn=...) is not there yet in raygo.train")
    if validation:
        raise NotImplementedError("report(validation=...) is not there yet in raygo.train")
    if checkpoint_dir_name is not None and ("/" in checkpoint_dir_name or checkpoint_dir_name in ("", ".", "..")):
        raise ValueError(f"checkpoint_dir_name is {checkpoint_dir_name!r}: give the name of a folder, not a path")
    current.report(metrics, checkpoint, checkpoint_dir_name, checkpoint_upload_mode is CheckpointUploadMode.SYNC,
                   bool(delete_local_checkpoint_after_upload))


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to go on from: the last one of a run that failed, or `resume_from_checkpoint`; None at a fresh start."""
    if current is None:
        _outside("get_checkpoint")
        return None
    return current.checkpoint


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's part of a dataset that the trainer was given, a `raygo.data.DataIterator`.

    Parameters
    ----------
    dataset_name : str, optional
        Its key in the trainer's `datasets`; not needed where there is one.

    Examples
    --------
    >>> for batch in raygo.train.get_dataset_shard("train").iter_torch_batches(batch_size=32):     # doctest: +SKIP
    ...     step(batch)
    """
    if current is None:
        raise SessionMisuseError("get_dataset_shard is meant for the training function of a trainer")
    shards = current.place.shards
    if not shards:
        raise KeyError("get_dataset_shard: the trainer was given no datasets; give it datasets={'train': raygo.data...}")
    if dataset_name is None:
        if len(shards) > 1:
            raise KeyError(f"get_dataset_shard: which one? The trainer was given {', '.join(sorted(shards))}")
        return next(iter(shards.values()))
    if dataset_name not in shards:
        raise KeyError(f"get_dataset_shard: there is no dataset {dataset_name!r}; the trainer was given {', '.join(sorted(shards))}")
    return shards[dataset_name]
