"""Where a run is stored, laid out as Ray does::

    storage_path/name/                              the run (experiment)
        trainer.pkl                                 the trainer and
        checkpoint_manager_snapshot.json            the kept checkpoints: what restores it
        TorchTrainer_<id>_00000_0_<time>/           a trial; Result.path
            result.json  progress.csv               one line for each report
            params.json  params.pkl                 train_loop_config
            checkpoint_000000/ ...                  whole checkpoints only

A checkpoint appears whole or not at all.  On a disk, ranks copy their files to ``.incoming/<report>/<rank>/``, and whoever commits moves
them into one folder, that of the lowest rank, whose files stay where ranks have some of one name, and renames that.  Object stores cannot
rename, so there ranks write to ``checkpoint_*`` itself after leaving a mark ``.uploading/<checkpoint>/<report>-<rank>.json``, and to commit
is to take the marks away: a folder with a mark is no checkpoint.  Deleting goes the same way backwards.  The mark lists the files that have
arrived, with digests, so that an upload that is begun again sends only the rest.  Where ranks may still bring files of a report to a
checkpoint that is whole without them, to commit is to add a mark ``<report>-whole``, beside which theirs mean nothing.
"""
from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._files import Files, join, local_files, resolve
from raygo.train.constants import DEFAULT_STORAGE_PATH
from raygo.train.error import StorageError

if TYPE_CHECKING:
    import pyarrow.fs

_INCOMING = ".incoming"
_UPLOADING = ".uploading"
_TRASH = ".deleting"
_WHOLE = "whole"
_DELETING = "deleting.json"
# A mark is written again after a file as large as this, so that little is sent twice.
_NOTE_FROM = 16 << 20
# Object stores retry single requests themselves; this is for what that does not mend.
_UPLOAD_ATTEMPTS = 3


class StorageContext:
    """Where things of a run are.  It can be pickled, with its file system.

    Parameters
    ----------
    storage_path : str or os.PathLike
        The folder of all runs: a path, or a URI such as ``s3://bucket/runs``; with `storage_filesystem`, a path there.
    experiment_dir_name : str
        The run's folder.
    sync_config : SyncConfig, optional
        Whether what trials leave in their working directory is stored too.
    storage_filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        The storage.
    trial_dir_name : str, optional
        The trial's folder in that of the run; can be set later.
    current_checkpoint_index : int, optional
        The number of the checkpoint that comes next from a trial that is one process.
    read_only : bool
        Nothing is written, not even to see whether it could be.
    trial_id, trial_name : str, optional
        Of the trial.
    """

    def __init__(self, storage_path: str | os.PathLike[str] | None, experiment_dir_name: str, sync_config: Any = None,
                 storage_filesystem: Any = None, trial_dir_name: str | None = None, current_checkpoint_index: int | None = None,
                 read_only: bool = False, trial_id: str | None = None, trial_name: str | None = None) -> None:
        self.files: Files
        self.files, self.storage_fs_path = resolve(storage_path if storage_path is not None else default_storage_path(), storage_filesystem)
        self.experiment_dir_name = experiment_dir_name
        self.trial_dir_name = trial_dir_name
        self.sync_config = sync_config
        self.current_checkpoint_index = current_checkpoint_index or 0
        self.read_only = read_only
        self.trial_id = trial_id
        self.trial_name = trial_name
        self._staging: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_staging": None}

    @property
    def storage_filesystem(self) -> pyarrow.fs.FileSystem:
        """The storage, as pyarrow names it."""
        return self.files.arrow()

    @property
    def experiment_fs_path(self) -> str:
        """The run's folder."""
        return join(self.storage_fs_path, self.experiment_dir_name)

    @property
    def trial_fs_path(self) -> str:
        """The trial's folder."""
        if self.trial_dir_name is None:
            raise RuntimeError("Should not access `trial_fs_path` without setting `trial_dir_name`")
        return join(self.experiment_fs_path, self.trial_dir_name)

    @property
    def experiment_driver_staging_path(self) -> str:
        """The run's folder on the driver's machine: itself where it is local, else what `Mirror` copies from."""
        if self.files.local:
            return self.experiment_fs_path
        if self._staging is None:
            self._staging = os.path.join(_staging_root(), self.experiment_dir_name, "driver_artifacts")
            os.makedirs(self._staging, exist_ok=True)
        return self._staging

    @property
    def trial_driver_staging_path(self) -> str:
        """The trial's folder on the driver's machine."""
        return os.path.join(self.experiment_driver_staging_path, self._trial())

    @property
    def trial_working_directory(self) -> str:
        """The folder that a trial may write to as it likes, on its machine."""
        return os.path.join(_staging_root(), self.experiment_dir_name, "working_dirs", self._trial())

    def _trial(self) -> str:
        if self.trial_dir_name is None:
            raise RuntimeError("Should not access a trial's folder without setting `trial_dir_name`")
        return self.trial_dir_name

    @property
    def checkpoint_dir_name(self) -> str:
        """The next checkpoint's."""
        return checkpoint_name(self.current_checkpoint_index)

    @property
    def checkpoint_fs_path(self) -> str:
        """The path of the next checkpoint."""
        return self.build_checkpoint_path_from_name(self.checkpoint_dir_name)

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """The path of a checkpoint."""
        return join(self.trial_fs_path, checkpoint_name)

    def checkpoint(self, name: str) -> Checkpoint:
        """A checkpoint of the trial by its name."""
        return Checkpoint._on(self.files, self.build_checkpoint_path_from_name(name))

    def create(self) -> None:
        """Makes the folders, and finds out whether the storage can be written to."""
        if self.files.local:
            self.files.make_folder(self.experiment_fs_path)
        else:
            self.files.write(join(self.experiment_fs_path, ".validate_storage_marker"), b"")
        if self.trial_dir_name is not None:
            self.files.make_folder(self.trial_fs_path)
            os.makedirs(self.trial_driver_staging_path, exist_ok=True)

    def persist_current_checkpoint(self, checkpoint: Checkpoint, name: str | None = None) -> Checkpoint:
        """For a trial that is one process: stores a checkpoint under a name, by default the next; the stored one."""
        index = self.current_checkpoint_index
        with checkpoint.as_directory() as folder:
            files = self.stage(folder, index, 0, name=name)
        self.current_checkpoint_index = index + 1
        return self.commit(index, name or checkpoint_name(index), files)

    # A rank's side.

    def stage(self, source: str, report: int, rank: int, *, name: str | None = None, move: bool = False) -> list[str]:
        """Brings a rank's files of a report to the storage, where they are not a checkpoint yet; their names.

        Parameters
        ----------
        source : str
            The folder, on this machine.
        report : int
            The report's number.
        rank : int
            Who brings it.
        name : str, optional
            The checkpoint's folder, where it is not called after the number of the report.
        move : bool
            The files of `source` are not needed any more.
        """
        if not self.files.local:
            return self._upload(source, name or checkpoint_name(report), report, rank)
        target = self._incoming(report, rank)
        if move and _same_disk(source, os.path.dirname(os.path.dirname(target)), self.files):
            names = local_files(source)
            self.files.delete(target)
            shutil.move(source, target)
            return names
        self.files.delete(target)        # of a process that was killed while it copied: its files are not of this checkpoint
        return list(self.files.upload(source, target))

    def _upload(self, source: str, name: str, report: int, rank: int) -> list[str]:
        mark = join(self._mark(name), f"{report}-{rank}.json")
        have: dict[str, tuple[int, str]] = {}
        if self.files.is_file(mark):
            have = {file: (size, seen) for file, (size, seen) in json.loads(self.files.read(mark)).items()}
        else:
            self.files.write(mark, b"{}")
        lock = threading.Lock()

        def note() -> None:
            self.files.write(mark, json.dumps(have).encode())

        def done(file: str, size: int, seen: str) -> None:
            with lock:
                have[file] = (size, seen)
                if size >= _NOTE_FROM:
                    note()

        for attempt in range(_UPLOAD_ATTEMPTS):
            try:
                return list(self.files.upload(source, self.build_checkpoint_path_from_name(name), done, have))
            except (FileNotFoundError, PermissionError):
                raise
            except OSError:
                if attempt + 1 == _UPLOAD_ATTEMPTS:
                    note()
                    raise
                time.sleep(0.3 * 4 ** attempt)      # back off
        raise AssertionError("unreachable")

    # The side of whoever sees that a report is complete.

    def commit(self, report: int, name: str, files: list[str] | None = None, more: bool = False) -> Checkpoint:
        """Makes what ranks brought for a report the checkpoint `name`, in the place of an older one of that name.

        Parameters
        ----------
        files : list of str, optional
            What the ranks brought in all; on an object store anything else is left from an upload that was given up, and goes.  None: these
            are late files, which join those that are there.
        more : bool
            Late files may come.
        """
        path = self.build_checkpoint_path_from_name(name)
        if self.files.local:
            self._merge(self._incoming(report), path, joins=files is None)
        else:
            if files is not None:
                for stray in set(self.files.files(path)) - set(files):
                    self.files.delete(join(path, stray))
            if files is not None and not more:
                self.files.delete(self._mark(name))
                return self.checkpoint(name)
            whole = f"{report}-{_WHOLE}"
            self.files.write(join(self._mark(name), whole), b"")
            for mark in self.files.files(self._mark(name)):
                if mark != whole:
                    self.files.delete(join(self._mark(name), mark))
        return self.checkpoint(name)

    def _merge(self, incoming: str, final: str, joins: bool) -> None:
        """Moves the files of all ranks into one folder; of those with the same name, the lowest rank's stays."""
        ranks = sorted(os.listdir(incoming), key=int)
        whole = final if joins and os.path.isdir(final) else os.path.join(incoming, ranks[0])
        for rank in ranks:
            if (source := os.path.join(incoming, rank)) != whole:
                _move_tree(source, whole)
        if whole != final:
            older = self._put_aside(os.path.basename(final))
            os.replace(whole, final)
            if older is not None:
                self.files.delete(older)
        shutil.rmtree(incoming)

    def discard(self, report: int | None = None, name: str | None = None, keep: Collection[str] = ()) -> None:
        """Removes what ranks brought for a report that came to nothing, or for all of them.

        Checkpoints in `keep` are whole: where files were on their way to join one, they are not waited for any more.
        """
        if self.files.local:
            self.files.delete(join(self.trial_fs_path, _INCOMING) if report is None else self._incoming(report))
            if report is None:
                self.files.delete(join(self.trial_fs_path, _TRASH))
            return
        names = self._unfinished() if report is None else {name or checkpoint_name(report)}
        for each in names:
            if each not in keep:
                self.files.delete(self.build_checkpoint_path_from_name(each))
            self.files.delete(self._mark(each))
        if report is None:
            self.files.delete(join(self.trial_fs_path, _UPLOADING))

    def checkpoints(self) -> list[str]:
        """The names of the trial's checkpoints, sorted; whole ones only, and of these only such as have no name of their own."""
        return [name for name in self.whole_folders() if name.startswith("checkpoint_")]

    def whole_folders(self) -> list[str]:
        """The names of all folders in the trial's that are not half of a checkpoint, sorted."""
        unfinished = self._unfinished()
        return [name for name in self.files.folders(self.trial_fs_path) if name not in unfinished]

    def is_checkpoint(self, name: str) -> bool:
        """Whether there is a whole checkpoint of that name."""
        return self.files.is_folder(self.build_checkpoint_path_from_name(name)) and (self.files.local or name not in self._unfinished())

    def delete_checkpoint(self, name: str) -> None:
        """Deletes a checkpoint; at no time half of it is to be seen as one."""
        path = self.build_checkpoint_path_from_name(name)
        if self.files.local:
            if (trash := self._put_aside(name)) is not None:
                self.files.delete(trash)
            return
        self.files.write(join(self._mark(name), _DELETING), b"{}")
        self.files.delete(path)
        self.files.delete(self._mark(name))

    def _put_aside(self, name: str) -> str | None:
        """Where a checkpoint on a disk is, once it is not one any more; None where there was none."""
        trash = join(self.trial_fs_path, _TRASH, name)
        self.files.make_folder(os.path.dirname(trash))
        self.files.delete(trash)         # of a process that was killed while it deleted one of the same name
        try:
            os.replace(self.build_checkpoint_path_from_name(name), trash)
        except FileNotFoundError:
            return None
        return trash

    def _incoming(self, report: int, rank: int | None = None) -> str:
        folder = join(self.trial_fs_path, _INCOMING, f"{report:06d}")
        return folder if rank is None else join(folder, str(rank))

    def _mark(self, name: str) -> str:
        return join(self.trial_fs_path, _UPLOADING, name)

    def _unfinished(self) -> set[str]:
        if self.files.local:
            return set()
        marks: dict[str, list[str]] = {}
        for path in self.files.files(join(self.trial_fs_path, _UPLOADING)):
            name, _, mark = path.rpartition("/")
            marks.setdefault(name, []).append(mark)
        return {name for name, each in marks.items() if not _are_of_late_files(each)}

    def __repr__(self) -> str:
        return (f"StorageContext(storage_filesystem={self.files.name!r}, storage_fs_path={self.storage_fs_path!r}, "
                f"experiment_dir_name={self.experiment_dir_name!r}, trial_dir_name={self.trial_dir_name!r}, "
                f"current_checkpoint_index={self.current_checkpoint_index})")


def _are_of_late_files(marks: list[str]) -> bool:
    """Whether a checkpoint with these marks is whole: not where it is being deleted, or a later report writes to it again."""
    whole = [int(mark.partition("-")[0]) for mark in marks if mark.endswith(_WHOLE)]
    return bool(whole) and _DELETING not in marks and all(int(mark.partition("-")[0]) <= max(whole) for mark in marks)


def checkpoint_name(index: int) -> str:
    """How checkpoints are called."""
    return f"checkpoint_{index:06d}"


def default_storage_path() -> str:
    """Where runs are stored when nobody says so."""
    return os.environ.get("RAY_AIR_LOCAL_CACHE_DIR") or os.environ.get("TUNE_RESULT_DIR") or DEFAULT_STORAGE_PATH


def _staging_root() -> str:
    from raygo import _session

    session = _session.current
    folder = session.session_dir if session is not None else ""
    if not folder or not os.path.isdir(folder):
        folder = os.path.join(tempfile.gettempdir(), f"raygo-{os.getuid()}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, "artifacts")


def _same_disk(source: str, target: str, files: Files) -> bool:
    files.make_folder(target)
    return os.stat(source).st_dev == os.stat(target).st_dev


def _move_tree(source: str, target: str) -> None:
    """What `target` has already stays."""
    for base, folders, names in os.walk(source):
        place = os.path.normpath(os.path.join(target, os.path.relpath(base, source)))
        for folder in folders:
            os.makedirs(os.path.join(place, folder), exist_ok=True)
        for name in names:
            if not os.path.lexists(os.path.join(place, name)):
                os.replace(os.path.join(base, name), os.path.join(place, name))


class Mirror:
    """Copies small files of a folder of this machine to the storage, in a thread of its own; the newest content of each.

    Where the folder is on the storage already, it does nothing.
    """

    def __init__(self, files: Files, folder: str, path: str) -> None:
        self._files = files
        self._folder = folder
        self._path = path
        self._sent: dict[str, tuple[int, int]] = {}
        self._wake = threading.Condition()
        self._due = self._closed = False
        self._thread: threading.Thread | None = None
        self.error: OSError | None = None

    def touch(self) -> None:
        """Something has changed."""
        if self._files.local:
            return
        with self._wake:
            self._due = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="raygo-mirror", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def close(self) -> None:
        """Waits until all is there, and ends the thread.

        Raises
        ------
        StorageError
            The last attempt failed.
        """
        with self._wake:
            self._closed = True
            self._due = self._due or self.error is not None        # once more, as what failed may have been for a moment only
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._due:
                    if self._closed:
                        return
                    self._wake.wait()
                self._due = False
            try:
                self.send()
                self.error = None
            except OSError as error:
                self.error = error
            except Exception as error:       # fsspec lets errors of the service's own kind through
                self.error = StorageError(0, f"copying to {self._files.name} failed: {type(error).__name__}: {error}", self._path)

    def send(self) -> None:
        """Copies what has changed, now."""
        for name in local_files(self._folder) if not self._files.local else []:
            here = os.path.join(self._folder, name)
            try:
                state = os.stat(here)
            except FileNotFoundError:
                continue
            seen = (state.st_size, state.st_mtime_ns)
            if self._sent.get(name) == seen:
                continue
            with open(here, "rb") as file:
                self._files.write(join(self._path, name), file.read())
            self._sent[name] = seen
