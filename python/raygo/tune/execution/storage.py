"""Where an experiment is kept: raygo.train's storage, seen from the driver of a search.

On this machine's file system everything is written in its place. For any other, the driver writes into a folder of this machine, which is
mirrored; checkpoints go from the trials straight to the storage.
"""
from __future__ import annotations

import os
import shutil
from typing import Any

from raygo.train import Checkpoint
from raygo.train._files import join
from raygo.train._storage import Mirror, StorageContext

__all__ = ["ExperimentStorage"]


class ExperimentStorage:
    """An experiment's folder.

    Parameters
    ----------
    storage_path : str, optional
        The folder of all experiments, or a URI of it; ``~/ray_results`` by default.
    name : str
        The experiment's folder in it.
    filesystem : pyarrow.fs.FileSystem, optional
        Where `storage_path` is.
    read_only : bool
        Nothing is written.

    Attributes
    ----------
    path : str
        The experiment's folder on the storage.
    local_path : str
        The experiment's folder on this machine; the same unless the storage is elsewhere.
    """

    def __init__(self, storage_path: str | os.PathLike[str] | None, name: str, filesystem: Any = None, read_only: bool = False) -> None:
        self._context = StorageContext(storage_path, name, storage_filesystem=filesystem, read_only=read_only)
        self.files = self._context.files
        self.name = name
        self.path = self._context.experiment_fs_path
        self.local_path = self._context.experiment_driver_staging_path
        self.is_local = self.files.local
        self._mirror: Mirror | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mirror": None}

    @property
    def context(self) -> StorageContext:
        """What all trials' folders have in common."""
        return self._context

    @property
    def filesystem(self) -> Any:
        """The storage, as pyarrow names it."""
        return self._context.storage_filesystem

    def prepare(self) -> None:
        """Make the folder, and find out now whether the storage can be written."""
        try:
            self._context.create()
            os.makedirs(self.local_path, exist_ok=True)
        except OSError as error:
            raise type(error)(error.errno, f"{error.strerror or error}. The search is stored there: give RunConfig a storage_path that can be written",
                              error.filename) from error

    def trial(self, folder: str, trial_id: str | None = None, trial_name: str | None = None, next_checkpoint: int = 0) -> StorageContext:
        """A trial's folder."""
        import copy

        context = copy.copy(self._context)
        context.trial_dir_name, context.trial_id, context.trial_name = folder, trial_id, trial_name
        context.current_checkpoint_index = next_checkpoint
        return context

    def checkpoint(self, trial_dir: str, name: str) -> Checkpoint:
        """A checkpoint by its name."""
        return Checkpoint._on(self.files, join(self.path, trial_dir, name))

    def delete_checkpoint(self, trial_dir: str, name: str) -> None:
        """Remove a checkpoint."""
        self.trial(trial_dir).delete_checkpoint(name)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.files.is_file(join(self.path, name))

    def changed(self) -> None:
        """Files of this machine are to be copied to the storage."""
        if not self.is_local:
            if self._mirror is None:
                self._mirror = Mirror(self.files, self.local_path, self.path)
            self._mirror.touch()

    def flush(self) -> None:
        """Wait until they are."""
        if self._mirror is not None:
            mirror, self._mirror = self._mirror, None
            mirror.close()

    def fetch(self) -> None:
        """Bring what the driver keeps, which is all but checkpoints, to this machine."""
        if self.is_local:
            return
        shutil.rmtree(self.local_path, ignore_errors=True)
        for name in self.files.files(self.path):
            if not any(part.startswith(("checkpoint_", ".uploading")) for part in name.split("/")[:-1]):
                target = os.path.join(self.local_path, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(self.files.read(join(self.path, name)))
