"""A trial's side: what `raygo.tune.report` and its kind do inside a trainable."""
from __future__ import annotations

import queue
import shutil
import threading
from typing import TYPE_CHECKING, Any

from raygo.train._session import CheckpointUploadMode

if TYPE_CHECKING:
    from raygo.train import Checkpoint
    from raygo.train._storage import StorageContext

__all__ = ["CHECKPOINT_ELSEWHERE", "FUNCTION_ENDED", "TrialSession", "TrialStop", "persist"]

# In a trial's report on its way to the driver: a checkpoint that is not in the trial's folder.
CHECKPOINT_ELSEWHERE = "_checkpoint_elsewhere"
# There too: the function has returned, so that there is nothing to stop.  One that reports "done" may still have to clean up.
FUNCTION_ENDED = "_function_ended"


class TrialStop(BaseException):
    """Raised by `report` in a trial that is to stop: not an Exception, so that ``finally`` runs and ``except Exception`` does not see it."""


class TrialSession:
    """The state of the function that runs in this process.

    Reports go in step: `report` returns when the driver has taken the report in and decided to let the trial go on.
    """

    def __init__(self, storage: StorageContext, resources: Any, checkpoint: Checkpoint | None) -> None:
        self.storage = storage
        self.resources = resources
        self.checkpoint = checkpoint
        self.reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._go_on = threading.Semaphore(0)
        self._stopped = False

    @property
    def place(self) -> Any:
        """A trial is a group of one."""
        from raygo.train._session import Place

        return Place(0, 1, 0, 1, 0, self.resources)

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None, checkpoint_name: str | None = None,
               mode: CheckpointUploadMode = CheckpointUploadMode.SYNC, delete: bool = False, upload: Any = None, validation: Any = False) -> None:
        if self._stopped:
            raise TrialStop
        said = dict(metrics)
        name = None
        if checkpoint is not None:
            self.checkpoint = self._store(checkpoint, checkpoint_name, mode, upload)
            if delete and checkpoint._files.local and self.checkpoint != checkpoint:
                shutil.rmtree(checkpoint.path, ignore_errors=True)
            name = self.checkpoint.path.rstrip("/").rpartition("/")[2]
            if self.checkpoint != self.storage.checkpoint(name):
                said[CHECKPOINT_ELSEWHERE] = self.checkpoint
        self.reports.put((said, name))
        self._go_on.acquire()
        if self._stopped:
            raise TrialStop

    def _store(self, checkpoint: Checkpoint, name: str | None, mode: CheckpointUploadMode, upload: Any) -> Checkpoint:
        if mode is CheckpointUploadMode.NO_UPLOAD:       # a trainer's workers have put it into the trial's folder, or it stays where it is
            return checkpoint
        if upload is None:
            return persist(self.storage, checkpoint, name)
        from raygo.train._session import stored_by

        stored = stored_by(upload, checkpoint, name or self.storage.checkpoint_dir_name)
        self.storage.current_checkpoint_index += 1
        return stored

    def go_on(self) -> None:
        """The driver has taken the last report in."""
        self._go_on.release()

    def stop(self) -> None:
        """The trial is to end at its next report, or now if it waits in one."""
        self._stopped = True
        self._go_on.release()


def persist(storage: StorageContext, checkpoint: Checkpoint, name: str | None = None) -> Checkpoint:
    """Store a checkpoint under a name, by default the next."""
    if name is None and storage.is_checkpoint(storage.checkpoint_dir_name):       # of a driver that died before it knew of it
        storage.delete_checkpoint(storage.checkpoint_dir_name)
    return storage.persist_current_checkpoint(checkpoint, name)
