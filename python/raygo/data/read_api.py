"""Making datasets: from values in this process, and from files."""
from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import raygo
from raygo.data import _block, _plan, _udf
from raygo.data._block import Block
from raygo.data._udf import missing
from raygo.data.dataset import Dataset, MaterializedDataset, of_blocks

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

__all__ = ["from_arrow", "from_items", "from_numpy", "from_pandas", "range", "read_csv", "read_json", "read_parquet"]

# What Ray's readers take and these do not.
_LATER = ("arrow_open_stream_args", "partition_filter", "partitioning", "shuffle", "tensor_column_schema", "catalog", "skip_paths",
          "include_row_hash", "label_selector", "fallback_strategy")


def _number(rows: int, override: int | None, parallelism: int) -> int:
    """Into how many blocks: what was asked for, else two for each CPU, so that none waits long for another."""
    for name, given in (("override_num_blocks", override), ("parallelism", parallelism if parallelism != -1 else None)):
        if given is not None:
            if not isinstance(given, int) or given < 1:
                raise ValueError(f"{name} is {given!r}: give at least 1")
            return given
    if not raygo.is_initialized():
        raygo.init()
    return max(1, min(rows, 2 * int(raygo.cluster_resources().get("CPU", 1))))


def range(n: int, *, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None) -> Dataset:
    """The numbers from 0 to before `n`, as the column "id".

    Parameters
    ----------
    n : int
        How many.
    override_num_blocks, parallelism : int
        In how many blocks.
    concurrency : int, optional
        How many tasks make them at once.

    Examples
    --------
    >>> raygo.data.range(3).take_all()                    # doctest: +SKIP
    [{'id': 0}, {'id': 1}, {'id': 2}]
    """
    if n < 0:
        raise ValueError(f"range({n}): give at least 0")
    blocks = _number(n, override_num_blocks, parallelism)
    functions = tuple(functools.partial(_numbers, n * i // blocks, n * (i + 1) // blocks) for i in builtins.range(blocks))
    return Dataset(_plan.Read("range", functions, _udf.task_options("range", {"concurrency": concurrency})))


def _numbers(start: int, stop: int) -> Block:
    import numpy as np

    return _block.from_columns({"id": np.arange(start, stop, dtype=np.int64)}, "range")


def from_items(items: list[Any], *, parallelism: int = -1, override_num_blocks: int | None = None) -> MaterializedDataset:
    """A row for each item: of a dict its values, of anything else the column "item"."""
    items = list(items)
    blocks = _number(len(items), override_num_blocks, parallelism)
    bounds = [len(items) * i // blocks for i in builtins.range(blocks + 1)]
    return of_blocks([_block.from_rows(items[a:b], "from_items") for a, b in zip(bounds, bounds[1:], strict=False)])


def from_pandas(dfs: pd.DataFrame | list[pd.DataFrame], override_num_blocks: int | None = None) -> MaterializedDataset:
    """The rows of a frame, or of several; their index is left out."""
    frames = dfs if isinstance(dfs, list) else [dfs]
    return _of([_block.from_batch(frame, "from_pandas") for frame in frames], override_num_blocks)


def from_arrow(tables: pa.Table | bytes | list[pa.Table | bytes], *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """The rows of a table, or of several; bytes are a table in Arrow's stream format."""
    import pyarrow as pa

    given = tables if isinstance(tables, list) else [tables]
    return _of([pa.ipc.open_stream(t).read_all() if isinstance(t, bytes) else _block.from_batch(t, "from_arrow") for t in given], override_num_blocks)


def from_numpy(ndarrays: np.ndarray | list[np.ndarray]) -> MaterializedDataset:
    """A row for each element of the first dimension, as the column "data"; a block for each array."""
    return of_blocks([_block.from_columns({"data": array}, "from_numpy") for array in (ndarrays if isinstance(ndarrays, list) else [ndarrays])])


def _of(blocks: list[Block], number: int | None) -> MaterializedDataset:
    if number is None:
        return of_blocks(blocks)
    whole = _block.concat(blocks)
    rows = _block.num_rows(whole)
    bounds = [rows * i // number for i in builtins.range(_number(rows, number, -1) + 1)]
    return of_blocks([_block.cut(whole, a, b) for a, b in zip(bounds, bounds[1:], strict=False)])


# ---- files


def read_parquet(paths: str | list[str], *, filesystem: Any = None, columns: list[str] | None = None, parallelism: int = -1,
                 num_cpus: float | None = None, num_gpus: float | None = None, memory: float | None = None, include_paths: bool = False,
                 file_extensions: list[str] | None = ["parquet"], ignore_missing_paths: bool = False, concurrency: int | None = None,  # noqa: B006
                 override_num_blocks: int | None = None, ray_remote_args: dict[str, Any] | None = None, **arrow_parquet_args: Any) -> Dataset:
    """The rows of Parquet files, a block for each file.

    Parameters
    ----------
    paths : str or list of str
        Files, or folders with them; URIs such as ``s3://bucket/folder`` too.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        Where they are.
    columns : list of str, optional
        Only these.
    include_paths : bool
        Add the column "path".
    file_extensions : list of str, optional
        Which files of a folder are read; None for all.
    ignore_missing_paths : bool
        Leave out paths that are not there.
    override_num_blocks, parallelism : int
        Another number of blocks.
    num_cpus, num_gpus, memory, concurrency, ray_remote_args : optional
        Of the tasks that read.
    **arrow_parquet_args
        Passed to `pyarrow.parquet.read_table`.
    """
    _check("read_parquet", arrow_parquet_args)
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, "concurrency": concurrency, **(ray_remote_args or {})}
    read = functools.partial(_read_parquet, columns, arrow_parquet_args)
    return _files("read_parquet", read, paths, filesystem, file_extensions, ignore_missing_paths, include_paths, override_num_blocks, parallelism, options)


def _read_parquet(columns: list[str] | None, arguments: dict[str, Any], stream: Any) -> Block:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(stream, columns=columns, **arguments)


def read_csv(paths: str | list[str], *, filesystem: Any = None, parallelism: int = -1, num_cpus: float | None = None, num_gpus: float | None = None,
             memory: float | None = None, include_paths: bool = False, ignore_missing_paths: bool = False, file_extensions: list[str] | None = None,
             concurrency: int | None = None, override_num_blocks: int | None = None, ray_remote_args: dict[str, Any] | None = None,
             **arrow_csv_args: Any) -> Dataset:
    """The rows of CSV files, a block for each file; parameters as for `read_parquet`.

    Parameters
    ----------
    **arrow_csv_args
        ``read_options``, ``parse_options`` and ``convert_options`` of `pyarrow.csv.read_csv`.
    """
    _check("read_csv", arrow_csv_args)
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, "concurrency": concurrency, **(ray_remote_args or {})}
    read = functools.partial(_read_csv, arrow_csv_args)
    return _files("read_csv", read, paths, filesystem, file_extensions, ignore_missing_paths, include_paths, override_num_blocks, parallelism, options)


def _read_csv(arguments: dict[str, Any], stream: Any) -> Block:
    import pyarrow.csv

    return pyarrow.csv.read_csv(stream, **arguments)


def read_json(paths: str | list[str], *, lines: bool = False, filesystem: Any = None, parallelism: int = -1, num_cpus: float | None = None,
              num_gpus: float | None = None, memory: float | None = None, include_paths: bool = False, ignore_missing_paths: bool = False,
              file_extensions: list[str] | None = ["json", "jsonl", "json.gz", "jsonl.gz"], concurrency: int | None = None,  # noqa: B006
              override_num_blocks: int | None = None, ray_remote_args: dict[str, Any] | None = None, **arrow_json_args: Any) -> Dataset:
    """The rows of JSON files, an object for each row, on lines or in a list; parameters as for `read_parquet`.

    Parameters
    ----------
    lines : bool
        Taken for compatibility: both forms are told apart.
    **arrow_json_args
        ``read_options`` and ``parse_options`` of `pyarrow.json.read_json`.
    """
    _check("read_json", arrow_json_args)
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, "concurrency": concurrency, **(ray_remote_args or {})}
    read = functools.partial(_read_json, arrow_json_args)
    return _files("read_json", read, paths, filesystem, file_extensions, ignore_missing_paths, include_paths, override_num_blocks, parallelism, options)


def _read_json(arguments: dict[str, Any], stream: Any) -> Block:
    import json

    import pyarrow as pa
    import pyarrow.json

    data = stream.read()
    if data.lstrip()[:1] == b"[":
        return _block.from_rows(json.loads(data), "a JSON file")
    return pyarrow.json.read_json(pa.BufferReader(data), **arguments)


def _check(reader: str, arguments: dict[str, Any]) -> None:
    for name in _LATER:
        if arguments.pop(name, None) is not None:
            raise missing(f"{reader}({name}=...)")


def _files(reader: str, read: Callable[[Any], Block], paths: str | list[str], filesystem: Any, extensions: list[str] | None, ignore_missing: bool,
           include_paths: bool, override: int | None, parallelism: int, options: dict[str, Any]) -> Dataset:
    files = _list(reader, [paths] if isinstance(paths, str) else [str(path) for path in paths], filesystem, extensions, ignore_missing)
    functions = tuple(functools.partial(_read_file, reader, read, system, path, include_paths) for system, path in files)
    made = Dataset(_plan.Read(reader, functions, _udf.task_options(reader, options)))
    if override is not None or parallelism != -1:
        made = made.repartition(_number(len(files), override, parallelism))
    return made


def _list(reader: str, paths: list[str], filesystem: Any, extensions: list[str] | None, ignore_missing: bool) -> list[tuple[Any, str]]:
    """The files at the paths, those of a folder in the order of their names."""
    import os

    from pyarrow import fs

    found: list[tuple[Any, str]] = []
    for path in paths:
        if filesystem is not None:
            system, where = filesystem, path
            if not isinstance(system, fs.FileSystem):
                system = fs.PyFileSystem(fs.FSSpecHandler(system))
        elif "://" in path:
            system, where = fs.FileSystem.from_uri(path)
        else:
            system, where = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(path))
        info = system.get_file_info(where)
        if info.type == fs.FileType.NotFound:
            if ignore_missing:
                continue
            raise FileNotFoundError(f"{reader}: there is no file or folder {path}")
        if info.type == fs.FileType.File:
            found.append((system, where))
            continue
        inside = [f.path for f in system.get_file_info(fs.FileSelector(where, recursive=True)) if f.type == fs.FileType.File]
        kept = [f for f in sorted(inside) if not os.path.basename(f).startswith((".", "_"))
                and (extensions is None or any(f.lower().endswith(f".{e.lower()}") for e in extensions))]
        if not kept and not ignore_missing:
            raise ValueError(f"{reader}: the folder {path} has no file" + (f" that ends in {', '.join(extensions)}" if extensions else ""))
        found += [(system, f) for f in kept]
    if not found:
        raise ValueError(f"{reader}: there is no file to read at {', '.join(paths)}")
    return found


def _read_file(reader: str, read: Callable[[Any], Block], filesystem: Any, path: str, include_path: bool) -> Block:
    import pyarrow as pa

    try:
        opened = filesystem.open_input_file(path) if reader == "read_parquet" else filesystem.open_input_stream(path)
        with opened as stream:
            block = read(stream)
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"{reader}: {path} could not be read: {error}") from error
    if include_path:
        block = block.append_column("path", pa.array([path] * block.num_rows))
    return block
