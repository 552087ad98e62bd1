"""Blocks: the parts of a dataset, as they lie in the object store, and the batches that users see.

A block is an Arrow table, so that every reader maps it without a copy and other languages read it.  A column of arrays with one shape is
Arrow's fixed-shape tensor.  Values that Arrow has no type for make the block a pandas frame; only this module tells the two apart.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

# pyarrow.Table or pandas.DataFrame; the modules are imported only where a block is worked on.
Block: TypeAlias = Any

FORMATS = ("numpy", "pandas", "pyarrow")


def check_format(batch_format: str | None, what: str) -> str:
    """The batch format by its one name: "default" is numpy."""
    if batch_format in ("default", None):
        return "numpy"
    if batch_format not in FORMATS:
        raise ValueError(f"{what}: batch_format is {batch_format!r}: give 'numpy', 'pandas', 'pyarrow' or 'default'")
    assert batch_format is not None
    return batch_format


def is_table(block: Block) -> bool:
    """Whether it is an Arrow table, not a frame."""
    import pyarrow as pa

    return isinstance(block, pa.Table)


# ---- making blocks


def from_batch(batch: Any, what: str) -> Block:
    """A block of what a user's function gave, or of what a dataset is made from.

    Parameters
    ----------
    batch
        A dict of columns, an Arrow table or a pandas frame.
    what : str
        Whose it is, for the error.
    """
    import pyarrow as pa

    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, Mapping):
        return from_columns(batch, what)
    if type(batch).__module__.split(".")[0] == "pandas" and hasattr(batch, "columns"):
        return from_frame(batch)
    raise ValueError(f"{what} gave a {type(batch).__name__}: give a dict of columns (name to NumPy array or list), a pandas.DataFrame or a pyarrow.Table")


def from_frame(frame: pd.DataFrame) -> Block:
    """A block of a frame's columns, without its index."""
    import pyarrow as pa

    frame = frame.reset_index(drop=True)
    if not all(isinstance(name, str) for name in frame.columns):
        frame = frame.rename(columns=str)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _with_tensors(frame)


def _with_tensors(frame: pd.DataFrame) -> Block:
    """A frame whose objects may be arrays of one shape; as it is, when Arrow cannot hold it."""
    import pyarrow as pa

    try:
        return pa.table({name: _column(list(frame[name])) for name in frame.columns})
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return frame


def from_columns(columns: Mapping[str, Any], what: str) -> Block:
    """A block of columns by name."""
    import pyarrow as pa

    made: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    fits = True
    for name, values in columns.items():
        if not isinstance(name, str):
            raise ValueError(f"{what} gave a column named {name!r}: names of columns are strings")
        if not hasattr(values, "__len__") or isinstance(values, (str, bytes)):
            raise ValueError(f"{what} gave a {type(values).__name__} for the column {name!r}: give an array or a list with a value per row")
        plain[name] = values
        try:
            made[name] = _column(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            fits = False
    lengths = {name: len(values) for name, values in plain.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{what} gave columns of different lengths: {lengths}")
    if fits:
        return pa.table(made)
    import pandas as pd

    return pd.DataFrame({name: pd.Series(list(values), dtype=object) if name not in made else list(values) for name, values in plain.items()})


def _column(values: Any) -> Any:
    """An Arrow array of a column: tensors where the values are arrays of one shape."""
    import numpy as np
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if isinstance(values, (list, tuple)) and values and all(isinstance(v, (np.ndarray, np.generic)) or hasattr(v, "detach") for v in values):
        values = [v.detach().cpu().numpy() if hasattr(v, "detach") else v for v in values]
        if len({(np.shape(v), np.asarray(v).dtype.str) for v in values}) == 1:
            values = np.stack(values)
    if isinstance(values, np.ndarray) and values.ndim > 1:
        if values.dtype.kind not in "biuf" or not all(values.shape):
            return pa.array(values.tolist())
        return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(values))
    return pa.array(values)


def from_rows(rows: Sequence[Any], what: str) -> Block:
    """A block of rows, dicts of values; a value that is no dict becomes the column "item"."""
    if not rows:
        import pyarrow as pa

        return pa.table({})
    if not isinstance(rows[0], Mapping):
        return from_columns({"item": list(rows)}, what)
    names: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            raise ValueError(f"{what} gave a {type(row).__name__} beside dicts: give a dict for every row")
        names.update(dict.fromkeys(row))
    return from_columns({name: [row.get(name) for row in rows] for name in names}, what)


# ---- reading blocks


def num_rows(block: Block) -> int:
    """How many rows it has."""
    return int(block.num_rows) if is_table(block) else len(block)


def num_bytes(block: Block) -> int:
    """How much memory it takes, about."""
    return int(block.nbytes) if is_table(block) else int(block.memory_usage(deep=True).sum())


def schema_of(block: Block) -> Any:
    """Arrow's schema of it; of a frame, as far as it goes."""
    import pyarrow as pa

    if is_table(block):
        return block.schema
    return pa.schema([(name, pa.null()) for name in block.columns])


def cut(block: Block, start: int, stop: int) -> Block:
    """Rows from `start` to before `stop`, without a copy where the block is a table."""
    return block.slice(start, stop - start) if is_table(block) else block.iloc[start:stop].reset_index(drop=True)


def take(block: Block, indices: Any) -> Block:
    """The rows with these numbers, in this order."""
    if is_table(block):
        import pyarrow as pa

        # Arrow's take does not know extension types everywhere: their storage is taken and the type put back.
        columns = []
        for column in block.columns:
            if isinstance(column.type, pa.ExtensionType):
                stored = pa.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)
                stored = stored.take(pa.array(indices))
                columns.append(pa.chunked_array([column.type.wrap_array(chunk) for chunk in stored.chunks], type=column.type))
            else:
                columns.append(column.take(pa.array(indices)))
        return pa.Table.from_arrays(columns, schema=block.schema)
    return block.iloc[indices].reset_index(drop=True)


def concat(blocks: Iterable[Block]) -> Block:
    """One block with the rows of all."""
    import pyarrow as pa

    given = list(blocks)
    some = [block for block in given if num_rows(block)] or given[:1] or [pa.table({})]
    if len(some) == 1:
        return some[0]
    if all(is_table(block) for block in some):
        return pa.concat_tables(some, promote_options="permissive")
    import pandas as pd

    return pd.concat([to_pandas(block) for block in some], ignore_index=True)


def to_pandas(block: Block) -> pd.DataFrame:
    """A frame; tensors become a column of arrays."""
    if not is_table(block):
        return block
    import pyarrow as pa

    tensors = {field.name: list(_numpy(block[field.name])) for field in block.schema if isinstance(field.type, pa.FixedShapeTensorType)}
    if not tensors:
        return block.to_pandas()
    import pandas as pd

    plain = block.drop_columns(list(tensors)).to_pandas() if len(tensors) < block.num_columns else pd.DataFrame(index=range(block.num_rows))
    for name, values in tensors.items():
        plain[name] = pd.Series(values, dtype=object)
    return plain[block.column_names]


def to_numpy(block: Block) -> dict[str, np.ndarray]:
    """A dict of arrays, views on the block where its memory allows."""
    if is_table(block):
        return {name: _numpy(block[name]) for name in block.column_names}
    return {name: block[name].to_numpy() for name in block.columns}


def _numpy(column: pa.ChunkedArray) -> np.ndarray:
    import numpy as np
    import pyarrow as pa

    if isinstance(column.type, pa.FixedShapeTensorType):
        parts = [chunk.to_numpy_ndarray() for chunk in column.chunks if len(chunk)]
        if not parts:
            return np.empty((0, *column.type.shape), column.type.value_type.to_pandas_dtype())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _lists(column)
    if column.num_chunks == 1:
        return column.chunk(0).to_numpy(zero_copy_only=False)
    return column.to_numpy()


def _lists(column: pa.ChunkedArray) -> np.ndarray:
    """Lists of one length as a matrix, others as an array of arrays."""
    import numpy as np

    rows = column.to_pylist()
    if rows and all(row is not None for row in rows) and len({len(row) for row in rows}) == 1:
        matrix = np.array(rows)
        if matrix.dtype.kind in "biuf":
            return matrix
    out = np.empty(len(rows), dtype=object)
    for index, row in enumerate(rows):
        out[index] = None if row is None else np.array(row)
    return out


def to_batch(block: Block, batch_format: str) -> Any:
    """The block in the format that a user asked for."""
    if batch_format == "numpy":
        return to_numpy(block)
    if batch_format == "pandas":
        return to_pandas(block)
    if is_table(block):
        return block
    import pyarrow as pa

    return pa.Table.from_pandas(block, preserve_index=False)


def iter_rows(block: Block) -> Iterator[dict[str, Any]]:
    """The rows as dicts of Python values; tensors are arrays."""
    import pyarrow as pa

    if not is_table(block):
        yield from block.to_dict("records")
        return
    names = block.column_names
    columns = [_numpy(block[name]) if isinstance(block.schema.field(name).type, pa.FixedShapeTensorType) else block[name].to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))
