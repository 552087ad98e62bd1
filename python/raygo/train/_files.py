"""Files of a run, on this machine or in a storage that pyarrow or fsspec knows.

Local files go through `os`, so that a worker whose run is on a disk never imports pyarrow.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from raygo.train.error import StorageError

if TYPE_CHECKING:
    import pyarrow.fs

_CHUNK = 4 << 20
_TRANSFERS = 4
# Object stores, where a file appears whole when it is closed.  They have no folders: making one costs a request and leaves an empty object.
_OBJECT_STORES = ("s3", "s3a", "gcs", "gs", "abfs", "abfss", "az", "adl", "oss", "memory")


@contextlib.contextmanager
def _named(what: str, path: str, storage: str) -> Iterator[None]:
    """Errors say what was tried, with which file, on which storage."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror if error.errno and error.strerror else str(error)
        kind = {FileNotFoundError: FileNotFoundError, PermissionError: PermissionError}.get(type(error), StorageError)
        raise kind(error.errno or 0, f"{what} failed on {storage}: {reason}", path) from error


class Files:
    """Reading and writing on one storage; paths are as pyarrow takes them."""

    local = False
    name = ""

    def arrow(self) -> pyarrow.fs.FileSystem:
        """The storage as pyarrow names it."""
        raise NotImplementedError

    def same(self, other: Files) -> bool:
        """Whether both are the same storage."""
        return self.local and other.local

    def identity(self) -> bytes:
        """The same in all processes that have the same storage, and other for another endpoint; it may hold a key to it."""
        return self.name.encode()

    def read(self, path: str) -> bytes:
        """A whole file."""
        raise NotImplementedError

    def write(self, path: str, data: bytes) -> None:
        """A whole file, of which a reader sees the old content or the new one; folders on the way are made."""
        raise NotImplementedError

    def is_file(self, path: str) -> bool:
        raise NotImplementedError

    def is_folder(self, path: str) -> bool:
        raise NotImplementedError

    def make_folder(self, path: str) -> None:
        raise NotImplementedError

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, sorted; none where it is missing."""
        raise NotImplementedError

    def files(self, path: str) -> dict[str, int]:
        """All files below a folder, by their path within it, with their sizes; none where it is missing."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """A file or a folder with all that is in it, if it is there."""
        raise NotImplementedError

    def download(self, path: str, target: str) -> None:
        """Copies a folder to one of this machine, beside what that has."""
        raise NotImplementedError

    def upload(self, source: str, path: str, done: Callable[[str, int, str], None] | None = None,
               have: dict[str, tuple[int, str]] | None = None) -> dict[str, int]:
        """Copies a folder of this machine here, beside what there is; files and sizes.

        Parameters
        ----------
        done : callable, optional
            Called with path, size and digest of each file that has arrived.
        have : dict, optional
            Files that are known to be here, with size and digest: those that still are the same are skipped.
        """
        raise NotImplementedError


def join(*parts: str) -> str:
    """A path on any storage."""
    return "/".join([parts[0].rstrip("/"), *(part.strip("/") for part in parts[1:])])


class LocalFiles(Files):
    """This machine's."""

    local = True
    name = "local"

    def arrow(self) -> pyarrow.fs.FileSystem:
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    def read(self, path: str) -> bytes:
        with _named("reading", path, self.name), open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        with _named("writing", path, self.name):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            # In the same folder, because only there os.replace is one step.
            scratch = f"{path}.{os.getpid()}.tmp"
            try:
                with open(scratch, "wb") as file:
                    file.write(data)
                os.replace(scratch, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(scratch)
                raise

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        with _named("making the folder", path, self.name):
            os.makedirs(path, exist_ok=True)

    def folders(self, path: str) -> list[str]:
        with _named("listing", path, self.name):
            try:
                return sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
            except FileNotFoundError:
                return []

    def files(self, path: str) -> dict[str, int]:
        return {name: os.path.getsize(os.path.join(path, name)) for name in local_files(path)}

    def delete(self, path: str) -> None:
        with _named("deleting", path, self.name), contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def download(self, path: str, target: str) -> None:
        if not os.path.isdir(path):
            raise FileNotFoundError(2, "no such folder on local storage", path)
        self.upload(path, target)

    def upload(self, source: str, path: str, done: Callable[[str, int, str], None] | None = None,
               have: dict[str, tuple[int, str]] | None = None) -> dict[str, int]:
        sizes: dict[str, int] = {}
        self.make_folder(path)
        for base, folders, names in os.walk(source):
            place = os.path.normpath(os.path.join(path, os.path.relpath(base, source)))
            for folder in folders:
                self.make_folder(os.path.join(place, folder))
            for name in names:
                here, there = os.path.join(base, name), os.path.join(place, name)
                with _named("copying", there, self.name):
                    shutil.copyfile(here, there)
                sizes[os.path.relpath(here, source)] = os.path.getsize(there)
        return sizes


class ArrowFiles(Files):
    """Those of a pyarrow file system."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem) -> None:
        self._fs = filesystem
        inner = getattr(getattr(filesystem, "handler", None), "fs", None)        # fsspec's, whose name may be a tuple of names
        protocol = getattr(inner, "protocol", None)
        kind = filesystem.type_name if protocol is None else protocol if isinstance(protocol, str) else protocol[0]
        self.name = kind if inner is None else f"fsspec+{kind}"
        self._objects = kind in _OBJECT_STORES

    def arrow(self) -> pyarrow.fs.FileSystem:
        return self._fs

    def same(self, other: Files) -> bool:
        return isinstance(other, ArrowFiles) and self._fs.equals(other._fs)

    def identity(self) -> bytes:
        inner = getattr(getattr(self._fs, "handler", None), "fs", None)
        # What pickle makes of fsspec's differs between processes; the arguments do not.
        made_with = _pickled(self._fs)
        if inner is not None and hasattr(inner, "storage_options"):
            made_with = repr((inner.storage_args, sorted(inner.storage_options.items()))).encode()
        surroundings = [os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")]
        return b"\0".join([self.name.encode(), *(each.encode() for each in surroundings), made_with])

    def _kind(self, path: str) -> str:
        with _named("looking at", path, self.name):
            return str(self._fs.get_file_info(path).type.name)

    def _parent(self, path: str) -> None:
        if not self._objects and "/" in path.strip("/"):
            self._fs.create_dir(path.rstrip("/").rpartition("/")[0], recursive=True)

    def read(self, path: str) -> bytes:
        with _named("reading", path, self.name), self._fs.open_input_stream(path) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        with _named("writing", path, self.name):
            self._parent(path)
            if self._objects:
                with self._fs.open_output_stream(path) as stream:
                    stream.write(data)
                return
            scratch = f"{path}.{os.getpid()}.tmp"
            with self._fs.open_output_stream(scratch) as stream:
                stream.write(data)
            self._fs.move(scratch, path)

    def is_file(self, path: str) -> bool:
        return self._kind(path) == "File"

    def is_folder(self, path: str) -> bool:
        return self._kind(path) == "Directory"

    def make_folder(self, path: str) -> None:
        if not self._objects:
            with _named("making the folder", path, self.name):
                self._fs.create_dir(path, recursive=True)

    def _list(self, path: str, recursive: bool) -> Any:
        import pyarrow.fs

        with _named("listing", path, self.name):
            return self._fs.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=recursive))

    def folders(self, path: str) -> list[str]:
        return sorted(info.base_name for info in self._list(path, False) if info.type.name == "Directory")

    def files(self, path: str) -> dict[str, int]:
        return {_within(info.path, path): info.size or 0 for info in self._list(path, True) if info.type.name == "File"}

    def delete(self, path: str) -> None:
        kind = self._kind(path)
        with _named("deleting", path, self.name), contextlib.suppress(FileNotFoundError):
            if kind == "Directory":
                self._fs.delete_dir(path)
            elif kind == "File":
                self._fs.delete_file(path)

    def download(self, path: str, target: str) -> None:
        names = self.files(path)
        if not names and not self.is_folder(path):
            raise FileNotFoundError(2, f"no such folder on {self.name} storage", path)

        def fetch(name: str) -> None:
            here = os.path.join(target, name)
            os.makedirs(os.path.dirname(here), exist_ok=True)
            with _named("downloading", join(path, name), self.name), self._fs.open_input_stream(join(path, name)) as stream, \
                    open(here, "wb") as file:
                while chunk := stream.read(_CHUNK):
                    file.write(chunk)

        os.makedirs(target, exist_ok=True)
        _each(fetch, list(names))

    def upload(self, source: str, path: str, done: Callable[[str, int, str], None] | None = None,
               have: dict[str, tuple[int, str]] | None = None) -> dict[str, int]:
        sizes: dict[str, int] = {}

        def send(name: str) -> None:
            here = os.path.join(source, name)
            sizes[name] = size = os.path.getsize(here)
            known = (have or {}).get(name)
            if known is not None and known[0] == size and known[1] == digest(here):
                return
            target, seen = join(path, name), hashlib.blake2b(digest_size=16)
            with _named("uploading", target, self.name), open(here, "rb") as file:
                self._parent(target)
                with self._fs.open_output_stream(target) as stream:
                    while chunk := file.read(_CHUNK):
                        seen.update(chunk)
                        stream.write(chunk)
            if done is not None:
                done(name, size, seen.hexdigest())

        names = local_files(source)
        if not names:
            self.make_folder(path)
        _each(send, names)
        return sizes


def _pickled(filesystem: Any) -> bytes:
    try:
        return pickle.dumps(filesystem)
    except Exception:       # one that stays in its process: others cannot have the same
        return f"{os.getpid()} {id(filesystem)}".encode()


LOCAL = LocalFiles()


def digest(path: str) -> str:
    """What a file of this machine holds, in a few bytes."""
    seen = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            seen.update(chunk)
    return seen.hexdigest()


def explain_relative_path(error: BaseException, home: str) -> None:
    """Add to an error of a trial that a relative path may have been meant from another folder, where the driver runs."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str) or os.path.isabs(error.filename):
        return
    there = os.path.exists(os.path.join(home, error.filename))
    error.strerror = (f"{error.strerror} (a trial runs in its own folder, {os.getcwd()}; the driver's is {home}"
                      f"{', which has that file' if there else ''}. Give an absolute path, or set RAY_CHDIR_TO_TRIAL_DIR=0)")


def local_files(folder: str) -> list[str]:
    """All files below a folder of this machine, by their path within it."""
    return sorted(os.path.relpath(os.path.join(base, name), folder).replace(os.sep, "/") for base, _, names in os.walk(folder) for name in names)


def _within(path: str, folder: str) -> str:
    return path.strip("/")[len(folder.strip("/")):].lstrip("/")


def _each(action: Callable[[str], None], names: list[str]) -> None:
    """A few at a time; the first error ends it."""
    if len(names) < 2:
        for name in names:
            action(name)
        return
    with ThreadPoolExecutor(min(_TRANSFERS, len(names)), thread_name_prefix="raygo-transfer") as pool:
        coming = [pool.submit(action, name) for name in names]
        try:
            for future in coming:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def resolve(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[Files, str]:
    """The storage that a path or URI names, and the path there.

    Parameters
    ----------
    path : str
        A path of this machine, ``file://...``, ``s3://...`` or another URI that pyarrow or fsspec knows; with `filesystem`, a path there.
    filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        The storage.

    Raises
    ------
    ValueError
        Nothing that is installed knows such a URI, or `filesystem` is something else.
    """
    text = os.fspath(path)
    if filesystem is not None:
        files = wrap(filesystem)
        return files, (os.path.abspath(os.path.expanduser(text)) if files.local else text.rstrip("/"))
    if text.startswith("file://"):
        text = text[len("file://"):]
    if "://" not in text:
        return LOCAL, os.path.abspath(os.path.expanduser(text))
    return _from_uri(text)


def _from_uri(uri: str) -> tuple[Files, str]:
    import pyarrow
    import pyarrow.fs

    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
        return wrap(filesystem), path.rstrip("/")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as first:
        try:
            import fsspec

            known, path = fsspec.core.url_to_fs(uri)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{uri} is no storage that can be reached from here: {first}; fsspec: {error}. Give a path, an s3://, gs://, "
                             "abfs://, hdfs:// URI, or storage_filesystem=... with a path on it.") from error
    return wrap(known), str(path).rstrip("/")


def wrap(filesystem: Any) -> Files:
    """What reads and writes on a pyarrow or fsspec file system."""
    import pyarrow.fs

    if isinstance(filesystem, pyarrow.fs.LocalFileSystem):
        return LOCAL
    if isinstance(filesystem, pyarrow.fs.FileSystem):
        return ArrowFiles(filesystem)
    if hasattr(filesystem, "open") and hasattr(filesystem, "protocol"):
        return ArrowFiles(pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem)))
    raise ValueError(f"storage_filesystem is a {type(filesystem).__name__}: give a pyarrow.fs.FileSystem or a file system of fsspec")
