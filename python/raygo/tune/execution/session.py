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

__all__ = ["TrialSession", "TrialStop", "persist"]


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
        name = None
        if self._stopped:
            raise TrialStop
        if checkpoint is not None:
            if mode is CheckpointUploadMode.NO_UPLOAD:       # a trainer's workers have put it into the trial's folder
                self.checkpoint = checkpoint
            else:
                self.checkpoint = persist(self.storage, checkpoint)
            if delete:
                shutil.rmtree(checkpoint.path, ignore_errors=True)
            name = self.checkpoint.path.rsplit("/", 1)[-1]
        self.reports.put((dict(metrics), name))
        self._go_on.acquire()
        if self._stopped:
            raise TrialStop

    def go_on(self) -> None:
        """The driver has taken the last report in."""
        self._go_on.release()

    def stop(self) -> None:
        """The trial is to end at its next report, or now if it waits in one."""
        self._stopped = True
        self._go_on.release()


def persist(storage: StorageContext, checkpoint: Checkpoint) -> Checkpoint:
    """Store a checkpoint under the next name."""
    if storage.is_checkpoint(storage.checkpoint_dir_name):       # of a driver that died before it knew of it
        storage.delete_checkpoint(storage.checkpoint_dir_name)
    return storage.persist_current_checkpoint(checkpoint)
