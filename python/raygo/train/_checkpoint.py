"""A folder of files that training can go on from."""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raygo.train._files import Files, join, resolve

if TYPE_CHECKING:
    import pyarrow.fs

_METADATA = ".metadata.json"


class Checkpoint:
    """Points to a folder, on this machine or on a file system that pyarrow or fsspec knows.

    Parameters
    ----------
    path : str
        The folder; a URI such as ``s3://bucket/folder`` where no file system is given.
    filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        Where the folder is; this machine by default.

    Examples
    --------
    >>> import tempfile
    >>> checkpoint = Checkpoint.from_directory(tempfile.mkdtemp())
    >>> with checkpoint.as_directory() as folder:
    ...     os.listdir(folder)
    []
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: pyarrow.fs.FileSystem | None = None) -> None:
        self._files: Files
        text = os.fspath(path)
        if filesystem is None and "://" not in text:
            from raygo.train._files import LOCAL

            self._files, self.path = LOCAL, text      # as given: repr shows it
        else:
            self._files, self.path = resolve(text, filesystem)

    @classmethod
    def _on(cls, files: Files, path: str) -> Checkpoint:
        made = cls.__new__(cls)
        made._files, made.path = files, path
        return made

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Where the folder is, as pyarrow names it."""
        return self._files.arrow()

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """A checkpoint of a folder of this machine."""
        return cls(os.fspath(path))

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files into `path`, or into a new temporary folder, and return its path."""
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        self._check_there()
        os.makedirs(target, exist_ok=True)
        self._files.download(self.path, target)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files in a folder of this machine: the checkpoint's own where it is local.

        Else they are downloaded, once for all processes that want them at the same time, and deleted when the last of those is done.
        """
        if self._files.local:
            self._check_there()
            yield self.path
            return
        key = hashlib.sha256(self._files.identity() + b"\0" + self.path.encode()).hexdigest()[:24]
        target = os.path.join(_downloads(), key)
        lock = self._downloaded(target)
        try:
            yield target
        finally:
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_at(f"{target}.lock", lock):
                        shutil.rmtree(target, ignore_errors=True)
                        os.unlink(f"{target}.lock")
            finally:
                os.close(lock)

    def _downloaded(self, target: str) -> int:
        """Has the files there; an open file, whose lock keeps them.

        It is shared by those who read, alone for who downloads or deletes.  Going from one to the other it is let go for a moment, in which
        somebody may delete the files and the lock's file, after which the lock says nothing any more.
        """
        path = f"{target}.lock"
        while True:
            lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if not os.path.isdir(target):
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if _is_at(path, lock) and not os.path.isdir(target):
                        shutil.rmtree(f"{target}.part", ignore_errors=True)
                        self._files.download(self.path, f"{target}.part")
                        os.rename(f"{target}.part", target)
                    fcntl.flock(lock, fcntl.LOCK_SH)
                if _is_at(path, lock) and os.path.isdir(target):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _check_there(self) -> None:
        if self._files.local and not os.path.isdir(self.path):
            raise FileNotFoundError(f"the checkpoint's folder {self.path} is not there: it was never made, was deleted, or is on another machine")

    def get_metadata(self) -> dict[str, Any]:
        """What was noted beside the files."""
        try:
            return dict(json.loads(self._files.read(join(self.path, _METADATA))))
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Note plain values beside the files, in the place of what was noted before."""
        self._files.write(join(self.path, _METADATA), json.dumps(metadata).encode())

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Note plain values beside those noted before."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path and self._files.same(other._files)

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(filesystem={self._files.name}, path={self.path})"


def _downloads() -> str:
    """A folder that is this user's alone, since its files have names that can be guessed."""
    folder = os.path.join(tempfile.gettempdir(), f"raygo-checkpoints-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    state = os.lstat(folder)
    if state.st_uid != os.getuid() or state.st_mode & 0o077 or os.path.islink(folder):
        raise PermissionError(f"{folder} belongs to somebody else or is open to others: remove it, or set TMPDIR to another place")
    return folder


def _is_at(path: str, file: int) -> bool:
    """Whether an open file is still the one of that path, as the last user deletes it."""
    try:
        return os.stat(path).st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False
