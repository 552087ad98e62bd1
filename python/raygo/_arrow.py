"""Arrow tables, and pandas frames made of Arrow columns, as streams that every language with an Arrow library reads.

The stored value is one buffer, an Arrow IPC stream, and a body that says what Python had: nothing for a table, otherwise a letter of `_KINDS`
and a pickle of what the stream does not hold. pyarrow's writer decides what is written, so that a slice writes its rows only; it writes into
a list of references to the buffers, and the binding copies them once, into shared memory. In between the stream is given
another spacing: pyarrow's begins a buffer at any multiple of 8, ours at multiples of 64, as Arrow asks of memory.
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TABLE, BATCH, CHUNKED, ARRAY, FRAME = b"", b"B", b"C", b"A", b"F"
_ALIGN = 64
_DICTIONARY, _RECORDS = 2, 3  # MessageHeader of Arrow's Message.fbs
_WASTE = 4096  # bytes beyond a slice that are not worth writing it anew


def kind_of(value: Any) -> bytes | None:
    """As what a value is stored when it is whole Arrow data; None: it is not."""
    pa = sys.modules.get("pyarrow")
    if pa is not None and hasattr(pa, "Table"):  # not while another thread imports it
        for cls, kind in ((pa.Table, TABLE), (pa.RecordBatch, BATCH), (pa.ChunkedArray, CHUNKED)):
            if type(value) is cls:
                return kind
        if isinstance(value, pa.Array):
            return ARRAY
        pd = sys.modules.get("pandas")
        if pd is not None and type(value) is getattr(pd, "DataFrame", None) and _has_arrow_columns(value, pd):
            return FRAME
    return None


def _has_arrow_columns(frame: pd.DataFrame, pd: Any) -> bool:
    for dtype in frame.dtypes:
        if not isinstance(dtype, pd.ArrowDtype) and not (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
            return False
    return frame.shape[1] > 0 and all(type(label) is str for label in frame.columns)


# ---- writing


def write(value: Any, kind: bytes, dump: Callable[[Any, Any], Any]) -> tuple[bytes, list[Any], list[Any]]:
    """Give the body, the parts of the stream in a row, and the further buffers that the body's pickle refers to.

    Parameters
    ----------
    value, kind
        The value and what `kind_of` said of it.
    dump
        The package's pickler: of a value, with a callback for buffers.
    """
    import pyarrow as pa

    rest: tuple[Any, ...] | None = None
    buffers: list[Any] = []
    if kind == FRAME:
        rest = value.index, value.columns, list(value.dtypes), value.attrs, value.flags.allows_duplicate_labels
        value = pa.Table.from_arrays([value.iloc[:, i].array.__arrow_array__() for i in range(value.shape[1])], names=list(value.columns))
    elif kind == CHUNKED:
        value = pa.Table.from_arrays([value], names=[""])
    elif kind == ARRAY:
        value = pa.RecordBatch.from_arrays([value], names=[""])
    types = _python_types(value.schema)
    body = kind
    if rest is not None or types:
        body = (kind or b"T") + bytes(dump((types, rest), buffers.append))
    return body, _stream(value), buffers


def _stream(value: pa.Table | pa.RecordBatch) -> list[Any]:
    import pyarrow as pa

    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), value.schema) as writer:
        writer.write(value)
    return _spaced(sink.parts) or [b"".join(sink.parts)]


class _Sink:
    """A file for Arrow's writer that keeps what it is given."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, part: Any) -> int:
        self.parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing is open."""


def _spaced(parts: list[Any]) -> list[Any] | None:
    """The messages of a stream for a layout where each part begins at a multiple of 64; None when they are not as this version knows them.

    A message is a head (marker, length, metadata) and a body of buffers, whose places the metadata has.
    """
    out: list[Any] = []
    at, n = 0, len(parts)
    while at < n:
        head, need = bytearray(), 8
        while len(head) < need and at < n:
            head += parts[at]
            at += 1
            if need == 8 <= len(head):
                need += int.from_bytes(head[4:8], "little")
        if len(head) != need or head[:4] != b"\xff\xff\xff\xff":
            return None
        out.append(head)
        if need == 8:  # the end's mark
            return out if at == n else None
        for size in _respace(head):
            if size == 0:
                continue
            if at == n or len(parts[at]) != size:
                return None
            out.append(parts[at])
            at += 1
            if size % 8:
                if at == n or len(parts[at]) != -size % 8:
                    return None
                at += 1
        length = -(-need // _ALIGN) * _ALIGN - 8
        head[4:8] = length.to_bytes(4, "little")
        head += bytes(length + 8 - need)
    return None


def _respace(head: bytearray) -> list[int]:
    """Change the places of the body's buffers in the metadata; their lengths."""
    (root,) = struct.unpack_from("<I", head, 8)
    message = 8 + root
    kind_at = _field(head, message, 1)
    kind = head[kind_at] if kind_at else 0
    if kind not in (_DICTIONARY, _RECORDS):
        return []
    batch = _follow(head, _field(head, message, 2))
    if kind == _DICTIONARY:
        batch = _follow(head, _field(head, batch, 1))
    listed = _field(head, batch, 2)
    if not listed:
        return []
    vector = _follow(head, listed)
    (count,) = struct.unpack_from("<I", head, vector)
    places = memoryview(head)[vector + 4 : vector + 4 + 16 * count].cast("q")
    sizes = places[1::2].tolist()
    at = 0
    for i, size in enumerate(sizes):
        places[2 * i] = at
        at += -(-size // _ALIGN) * _ALIGN
    places.release()
    total = _field(head, message, 3)
    if total:
        struct.pack_into("<q", head, total, at)
    return sizes


def _field(data: bytearray, table: int, number: int) -> int:
    """Where a field of a flatbuffers table stands; 0: it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + offset if offset else 0


def _follow(data: bytearray, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _python_types(schema: pa.Schema) -> list[pa.ExtensionType]:
    """Extension types that are defined in Python: whoever reads the value may not have registered them."""
    import pyarrow as pa

    found: dict[str, pa.ExtensionType] = {}

    def look(kind: pa.DataType) -> None:
        if isinstance(kind, pa.BaseExtensionType):
            if isinstance(kind, pa.ExtensionType):
                found[kind.extension_name] = kind
            look(kind.storage_type)
        elif isinstance(kind, pa.DictionaryType):
            look(kind.value_type)
        else:
            for i in range(kind.num_fields):
                look(kind.field(i).type)

    for kind in schema.types:
        look(kind)
    return list(found.values())


# ---- reading


def read(body: Any, buffers: list[Any]) -> Any:
    """Read what `write` wrote, or any Arrow stream that another language put. The data is not copied."""
    import pyarrow as pa

    if not buffers:
        raise ValueError("a stored Arrow value is not whole: it has no stream")
    body = memoryview(body)
    kind = bytes(body[:1])
    types, rest = pickle.loads(body[1:], buffers=buffers[1:]) if len(body) > 1 else ((), None)
    for each in types:
        try:
            pa.register_extension_type(each)
        except pa.ArrowKeyError:  # it is registered
            pass
    with pa.ipc.open_stream(pa.py_buffer(buffers[0])) as reader:
        if kind in (BATCH, ARRAY):
            batch = reader.read_next_batch()
            return batch.column(0) if kind == ARRAY else batch
        table = reader.read_all()
    if kind == CHUNKED:
        return table.column(0)
    return _frame(table, *rest) if kind == FRAME and rest else table


def _frame(table: pa.Table, index: Any, columns: Any, dtypes: list[Any], attrs: dict[Any, Any], duplicates: bool) -> pd.DataFrame:
    import pandas as pd

    arrays = {i: dtype.__from_arrow__(table.column(i)) for i, dtype in enumerate(dtypes)}
    frame = pd.DataFrame(arrays, index=index, copy=False)
    frame.columns = columns
    frame.attrs = attrs
    return frame if duplicates else frame.set_flags(allows_duplicate_labels=False)


# ---- inside other values


def learn(reducers: dict[type, Callable[[Any, Any], Any]]) -> bool:
    """Add reducers for Arrow data inside other values; False: pyarrow is still being imported."""
    pa = sys.modules["pyarrow"]
    if not hasattr(pa, "ipc") or not hasattr(pa, "Table"):
        return False
    for cls in (pa.Table, pa.RecordBatch, pa.ChunkedArray):
        reducers.setdefault(cls, _reduce)
    for cls in vars(pa.lib).values():
        if isinstance(cls, type) and issubclass(cls, pa.Array):
            reducers.setdefault(cls, _reduce)
    return True


def _reduce(pickler: Any, value: Any) -> Any:
    """pyarrow pickles whole buffers, which is what we want unless the value is a small part of them. It forgets how many rows no columns have."""
    kind = kind_of(value)
    rows_alone = kind in (TABLE, BATCH) and not value.num_columns and value.num_rows
    if kind is None or not rows_alone and value.get_total_buffer_size() <= 2 * value.nbytes + _WASTE:
        return NotImplemented
    body, parts, buffers = write(value, kind, pickler.dump_apart)
    return _read_inner, (body, pickle.PickleBuffer(_joined(parts)), *map(pickle.PickleBuffer, buffers))


def _joined(parts: list[Any]) -> pa.Buffer:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    for part in parts:
        sink.write(part)
        sink.write(bytes(-len(part) % _ALIGN))
    return sink.getvalue()


def _read_inner(body: bytes, *buffers: Any) -> Any:
    return read(body, list(buffers))
