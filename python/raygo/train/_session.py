"""A training worker's side: its place in the group, and how it reports.

`report` leaves a message for the driver and brings the checkpoint to the storage.  It does not wait for other ranks: one that never
reports does not hold up those that do.
"""
from __future__ import annotations

import enum
import itertools
import logging
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pickle import PicklingError
from typing import Any

from raygo import _step_profile
from raygo.train._checkpoint import Checkpoint
from raygo.train._messages import Ask, Brought, Mailbox, Place, Report, dump
from raygo.train._reported import CheckpointConsistencyMode, ReportedCheckpoint, ValidationTaskConfig
from raygo.train._storage import StorageContext, checkpoint_name
from raygo.train.error import PreemptionInfo, SessionMisuseError

__all__ = ["CheckpointUploadMode", "Place", "Report", "Session", "get_checkpoint", "get_dataset_shard", "report"]

log = logging.getLogger("raygo.train")
# A loop that reports ASYNC faster than files can be stored is slowed down to it.
_UPLOADS_AT_ONCE = 2
_SAY_AFTER_S = 10.0


class CheckpointUploadMode(enum.Enum):
    """How `report` brings a checkpoint to the storage.

    SYNC copies the files and returns; ASYNC returns at once and copies meanwhile; NO_UPLOAD leaves them where they are.
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def _default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        """Whether the local folder is removed afterwards when the caller does not say: with ASYNC, as the caller cannot know when."""
        return self._default_delete_local_checkpoint_after_upload()


class Session:
    """The state of the training function that runs in this process.

    Parameters
    ----------
    place : Place
        Its rank, and so on.
    storage : StorageContext
        Where checkpoints go.
    checkpoint : Checkpoint, optional
        What `get_checkpoint` gives.
    first_report : int
        The number of the first report.
    journal : str, optional
        See `Mailbox`.
    """

    def __init__(self, place: Place, storage: StorageContext, checkpoint: Checkpoint | None, first_report: int, journal: str | None = None) -> None:
        self.place = place
        self.storage = storage
        self._checkpoint = checkpoint
        self._first = self.reports = first_report
        self.mailbox = Mailbox(journal)
        self._pool: ThreadPoolExecutor | None = None
        self._uploads: list[Future[None]] = []
        self._reported = time.perf_counter()
        self._questions = itertools.count()
        self._collectives = itertools.count()
        self._answers: dict[int, Any] = {}
        self._answered = threading.Condition()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The one to go on from; once this rank has reported, the newest that is whole."""
        return self._checkpoint if self.reports == self._first else self.ask("get_checkpoint")

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None, name: str | None = None,
               mode: CheckpointUploadMode = CheckpointUploadMode.SYNC, delete: bool = False,
               upload: Callable[[Checkpoint, str], Checkpoint] | None = None, validation: Any = False) -> None:
        self._settle(_UPLOADS_AT_ONCE - 1 if mode is CheckpointUploadMode.ASYNC else None)
        index = self.reports
        now = time.perf_counter()
        self._put(Report(index, metrics, checkpoint is not None, validation, (now - self._reported, *_step_profile.current.take())))
        self.reports += 1        # not before: for a number that nobody has said, the driver would wait
        self._reported = now
        if checkpoint is None:
            return
        if mode is CheckpointUploadMode.NO_UPLOAD:
            self.mailbox.put(Brought(index, in_place=checkpoint, name=name))
        elif mode is CheckpointUploadMode.ASYNC:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="raygo-upload")
            self._uploads.append(self._pool.submit(self._bring, index, checkpoint, name, delete, upload))
        else:
            self._bring(index, checkpoint, name, delete, upload)

    def _put(self, report: Report) -> None:
        try:
            self.mailbox.put(report)
        except (TypeError, AttributeError, PicklingError) as error:
            for name, value in report.metrics.items():
                try:
                    dump(value)
                except Exception:
                    raise TypeError(f"report: the metric {name!r} is a {type(value).__name__}, which cannot be sent to the driver: {error}. "
                                    "Report numbers, text, and lists and dicts of them") from error
            raise

    def _bring(self, index: int, checkpoint: Checkpoint, name: str | None, delete: bool,
               upload: Callable[[Checkpoint, str], Checkpoint] | None) -> None:
        brought = Brought(index, failed=True, name=name)        # the driver must not wait for what failed
        try:
            if upload is not None:
                brought = Brought(index, in_place=stored_by(upload, checkpoint, name or checkpoint_name(index)), name=name)
            else:
                with checkpoint.as_directory() as folder:
                    brought.files = self.storage.stage(folder, index, self.place.world_rank, name=name, move=delete and checkpoint._files.local)
            brought.failed = False
        finally:
            self.mailbox.put(brought)
        if delete and checkpoint._files.local and brought.in_place != checkpoint:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _settle(self, most: int | None) -> None:
        """Raises what uploads in the background have raised; waits until no more than `most` are left."""
        while self._uploads and (self._uploads[0].done() or (most is not None and len(self._uploads) > most)):
            self._uploads.pop(0).result()

    def end(self) -> None:
        """No more reports will come; waits for uploads."""
        try:
            self._settle(0)
        finally:
            if self._pool is not None:
                self._pool.shutdown()
            self.mailbox.put(None)

    def ask(self, what: str, value: Any = None, timeout: float | None = None) -> Any:
        """Ask the driver, and wait for its answer.

        Raises
        ------
        TimeoutError
            There was none in time.
        """
        number = next(self._questions)
        self.mailbox.put(Ask(number, what, value))
        with self._answered:
            early = _SAY_AFTER_S if timeout is None else min(timeout, _SAY_AFTER_S)
            if not self._answered.wait_for(lambda: number in self._answers, early):
                if timeout is None or timeout > early:
                    log.warning("rank %d has waited for %s for %g s; it waits on", self.place.world_rank, what, early)
                if not self._answered.wait_for(lambda: number in self._answers, None if timeout is None else timeout - early):
                    raise TimeoutError(f"rank {self.place.world_rank} got no answer to {what} within {timeout:g} s")
            answer = self._answers.pop(number)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def together(self, what: str, value: Any = None) -> Any:
        """The n-th call of all ranks belong together: waits for them, and gives rank 0's value."""
        return self.ask(what, (next(self._collectives), value))

    def answer(self, number: int, value: Any) -> None:
        """The driver's answer."""
        with self._answered:
            self._answers[number] = value
            self._answered.notify_all()


def stored_by(upload: Callable[[Checkpoint, str], Checkpoint], checkpoint: Checkpoint, name: str) -> Checkpoint:
    """What a ``checkpoint_upload_fn`` has made of a checkpoint."""
    stored = upload(checkpoint, name)
    if not isinstance(stored, Checkpoint):
        raise ValueError(f"checkpoint_upload_fn must return a `ray.train.Checkpoint`, the one that it stored, not a {type(stored).__name__}")
    return stored


current: Session | None = None


def _outside(what: str) -> None:
    from raygo.util.debug import log_once

    if log_once(("raygo.train outside", what)):
        warnings.warn(f"raygo.train.{what} does nothing here: it is meant for the training function of a trainer", stacklevel=3)


def report(metrics: dict[str, Any], checkpoint: Checkpoint | None = None, checkpoint_dir_name: str | None = None,
           checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC, delete_local_checkpoint_after_upload: bool | None = None,
           checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None, validation: Any = False) -> None:
    """Tell the driver how training goes; each worker calls it, and rank 0's metrics are kept.

    Parameters
    ----------
    metrics : dict
        Values of this round.
    checkpoint : Checkpoint, optional
        Files to keep.  Those of all ranks come into one folder; of files with the same name, those of the lowest rank stay (on an object
        store, those that arrive last: give them names of their own there).
    checkpoint_dir_name : str, optional
        The folder's name; ``checkpoint_000000`` and so on by default.
    checkpoint_upload_mode : CheckpointUploadMode
        SYNC copies the files before it returns, ASYNC in the background; NO_UPLOAD leaves them where they are, which must be a place
        that stays.
    delete_local_checkpoint_after_upload : bool, optional
        Remove the local folder after it was copied; by default with ASYNC.
    checkpoint_upload_fn : callable, optional
        Stores the checkpoint in the place of raygo: takes it and a name for its folder, and returns what it stored.
    validation : bool or ValidationTaskConfig
        Have the trainer's `ValidationConfig` validate this checkpoint.

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
    _refuse_tensors(metrics, "")
    mode = CheckpointUploadMode(checkpoint_upload_mode)
    if checkpoint_dir_name is not None and ("/" in checkpoint_dir_name or checkpoint_dir_name in ("", ".", "..")):
        raise ValueError(f"checkpoint_dir_name is {checkpoint_dir_name!r}: give the name of a folder, not a path")
    if mode is CheckpointUploadMode.NO_UPLOAD and checkpoint_upload_fn is not None:
        raise ValueError("report: checkpoint_upload_fn does nothing with NO_UPLOAD: use SYNC or ASYNC")
    if not isinstance(validation, (bool, ValidationTaskConfig)) and validation is not None:
        raise TypeError(f"report: validation is {validation!r}: give True, or a raygo.train.ValidationTaskConfig")
    if validation and checkpoint is None:
        raise ValueError("report(validation=...) validates a checkpoint: give one")
    if validation and not current.place.validates:
        raise ValueError("report(validation=...) needs a trainer with validation_config=raygo.train.ValidationConfig(...)")
    delete = delete_local_checkpoint_after_upload
    current.report(metrics, checkpoint, checkpoint_dir_name, mode, mode.default_delete_local_checkpoint_after_upload() if delete is None else delete,
                   checkpoint_upload_fn, validation)


def _refuse_tensors(metrics: Any, name: str) -> None:
    """Tensors would need torch in the driver, or a GPU, and cannot be compared and written as numbers are."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for key, value in metrics.items() if isinstance(metrics, dict) else enumerate(metrics):
        if isinstance(value, torch.Tensor):
            raise ValueError(f"report: the metric '{name}{key}' is a torch.Tensor. Give a number, as its .item(), or keep it in the checkpoint")
        if isinstance(value, (dict, list, tuple)):
            _refuse_tensors(value, f"{name}{key}/")


def get_checkpoint() -> Checkpoint | None:
    """The newest checkpoint that the workers have reported; before the first that of a run that failed, or `resume_from_checkpoint`.

    None at a fresh start.  It does not wait for workers that have not reported yet, but for a moment where this worker has brought files that
    are only whole with theirs; then it is an older one.
    """
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


def get_all_reported_checkpoints(consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
                                 timeout_s: float | None = None) -> list[ReportedCheckpoint]:
    """The checkpoints that have been reported so far, also before a restart, in their order.

    Parameters
    ----------
    consistency_mode : CheckpointConsistencyMode
        Wait until those that this worker has reported are stored, or also until all validations that were asked for have ended.
    timeout_s : float, optional
        How long to wait; by default as long as it takes.

    Raises
    ------
    TimeoutError
        They were not there in time.
    """
    if current is None:
        _outside("get_all_reported_checkpoints")
        return []
    validated = CheckpointConsistencyMode(consistency_mode) is CheckpointConsistencyMode.VALIDATED
    return list(current.ask("get_all_reported_checkpoints", (current.reports, validated), timeout_s))


def get_preemption_info() -> PreemptionInfo | None:
    """Machines that are about to be taken away: None, as nothing tells raygo of such plans."""
    if current is None:
        _outside("get_preemption_info")
    return None
