"""A folder of files that training can go on from."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.fs

_METADATA = ".metadata.json"


class Checkpoint:
    """Points to a folder, on this machine or on a file system that pyarrow knows.

    Parameters
    ----------
    path : str
        The folder; a URI such as ``s3://bucket/folder`` where no file system is given.
    filesystem : pyarrow.fs.FileSystem, optional
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
        text = os.fspath(path)
        if filesystem is None and text.startswith("file://"):
            text = text[len("file://"):]
        if filesystem is None and "://" in text:
            import pyarrow.fs

            filesystem, text = pyarrow.fs.FileSystem.from_uri(text)
        self.path: str = text
        self._filesystem = None if filesystem is not None and filesystem.type_name == "local" else filesystem

    @property
    def filesystem(self) -> Any:
        """Where the folder is, as pyarrow names it."""
        if self._filesystem is not None:
            return self._filesystem
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """A checkpoint of a folder of this machine."""
        return cls(os.fspath(path))

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files into `path`, or into a new temporary folder, and return its path."""
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(target, exist_ok=True)
        if self._filesystem is None:
            if not os.path.isdir(self.path):
                raise FileNotFoundError(f"the checkpoint's folder {self.path} is not there any more")
            shutil.copytree(self.path, target, dirs_exist_ok=True)
        else:
            import pyarrow.fs

            pyarrow.fs.copy_files(self.path, target, source_filesystem=self._filesystem)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The files in a folder of this machine: the checkpoint's own where it is local, else a copy that is removed afterwards."""
        if self._filesystem is None:
            if not os.path.isdir(self.path):
                raise FileNotFoundError(f"the checkpoint's folder {self.path} is not there any more")
            yield self.path
            return
        folder = self.to_directory()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def get_metadata(self) -> dict[str, Any]:
        """What was noted beside the files."""
        if self._filesystem is None:
            try:
                with open(os.path.join(self.path, _METADATA)) as file:
                    return dict(json.load(file))
            except FileNotFoundError:
                return {}
        import pyarrow.fs

        name = f"{self.path}/{_METADATA}"
        if self._filesystem.get_file_info(name).type == pyarrow.fs.FileType.NotFound:
            return {}
        with self._filesystem.open_input_stream(name) as stream:
            return dict(json.loads(stream.read().decode()))

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Note plain values beside the files, in the place of what was noted before."""
        text = json.dumps(metadata)
        if self._filesystem is None:
            with open(os.path.join(self.path, _METADATA), "w") as file:
                file.write(text)
            return
        with self._filesystem.open_output_stream(f"{self.path}/{_METADATA}") as stream:
            stream.write(text.encode())

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Note plain values beside those noted before."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def __repr__(self) -> str:
        where = "local" if self._filesystem is None else self._filesystem.type_name
        return f"Checkpoint(filesystem={where}, path={self.path})"
