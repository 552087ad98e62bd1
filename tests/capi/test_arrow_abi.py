"""The C stream interface against pyarrow: every type comes through in both directions, slices take their rows, and broken streams are refused."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from native import CAPI, HERE, LIBRARY, WARNINGS, can_sanitize, compiler, run

pa = pytest.importorskip("pyarrow")

ARROW = 4  # RAYGO_ARROW


class Buf(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("owner", ctypes.c_void_p),
        ("format", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Error(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("code", ctypes.c_int32),
        ("retryable", ctypes.c_int32),
        ("message", ctypes.c_char_p),
        ("detail", Buf),
    ]


class Stream(ctypes.Structure):
    _fields_ = [("slots", ctypes.c_void_p * 5)]


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY.name} is not built: run make build")
    return ctypes.CDLL(str(LIBRARY))


def check(library: ctypes.CDLL, status: int, error: Error) -> None:
    if status:
        text = (error.message or b"").decode()
        library.raygo_error_clear(ctypes.byref(error))
        raise ValueError(text)


def to_bytes(library: ctypes.CDLL, table: pa.Table) -> bytes:
    """The stream that raygo stores of a table."""
    stream, buf, error = Stream(), Buf(), Error(ctypes.sizeof(Error))
    pa.RecordBatchReader.from_batches(table.schema, table.to_batches())._export_to_c(ctypes.addressof(stream))
    check(library, library.raygo_arrow_bytes(ctypes.byref(stream), ctypes.byref(buf), ctypes.byref(error)), error)
    assert buf.format == ARROW and buf.data % 64 == 0
    data = ctypes.string_at(buf.data, buf.len)
    library.raygo_buf_release(ctypes.byref(buf))
    return data


def from_bytes(library: ctypes.CDLL, data: bytes) -> pa.Table:
    """The table that raygo hands out of a stream, whose bytes are kept for good."""
    stream, error = Stream(), Error(ctypes.sizeof(Error))
    keep = ctypes.create_string_buffer(data, len(data))
    buf = Buf(ctypes.addressof(keep), len(data), None, ARROW, 0)
    check(library, library.raygo_arrow_stream(ctypes.byref(buf), ctypes.byref(stream), ctypes.byref(error)), error)
    KEPT.append(keep)
    return pa.RecordBatchReader._import_from_c(ctypes.addressof(stream)).read_all()


KEPT: list[object] = []


def written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def columns() -> Iterator[tuple[str, pa.Array]]:
    """An array of each type, with missing elements, of 203 elements."""
    n = 203
    rng = random.Random(7)
    numbers = [None if rng.random() < 0.2 else rng.randrange(100) for _ in range(n)]
    texts = [None if v is None else "x" * (v % 20) + str(v) for v in numbers]
    lists = [None if v is None else list(range(v % 5)) for v in numbers]
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()):
        yield str(kind), pa.array(numbers, kind)
    yield "half", pa.array(numbers, pa.float64()).cast(pa.float16())
    yield "bool", pa.array([None if v is None else v % 3 == 0 for v in numbers])
    yield "null", pa.nulls(n)
    for kind in (pa.date32(), pa.time32("s"), pa.time32("ms")):
        yield str(kind), pa.array(numbers, pa.int32()).cast(kind)
    for kind in (pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin"), *(pa.duration(u) for u in ("s", "ms", "us", "ns"))):
        yield str(kind), pa.array(numbers, pa.int64()).cast(kind)
    yield "date64", pa.array([None if v is None else v * 86_400_000 for v in numbers], pa.int64()).cast(pa.date64())
    yield "interval", pa.array([None if v is None else (v, 2, 3) for v in numbers], pa.month_day_nano_interval())
    yield "decimal128", pa.array(numbers, pa.int64()).cast(pa.decimal128(25, 4))
    yield "decimal256", pa.array(numbers, pa.int64()).cast(pa.decimal256(50, 4))
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(kind), pa.array([None if t is None else t * 3 for t in texts], kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield str(kind), pa.array([None if t is None else t.encode() for t in texts], kind)
    yield "fixed", pa.array([None if v is None else b"abc" for v in numbers], pa.binary(3))
    yield "list", pa.array(lists, pa.list_(pa.int16()))
    yield "large list", pa.array(lists, pa.large_list(pa.int64()))
    yield "list of lists", pa.array([None if x is None else [x, None, x] for x in lists], pa.list_(pa.list_(pa.int32())))
    yield "list view", pa.array(lists, pa.list_view(pa.int32()))
    yield "fixed list", pa.array([None if v is None else [v, None, 3] for v in numbers], pa.list_(pa.int32(), 3))
    yield "struct", pa.array([None if v is None else {"a": v, "b": texts[i], "c": {"d": lists[i]}} for i, v in enumerate(numbers)])
    yield "map", pa.array([None if v is None else [("k", v), ("l", None)] for v in numbers], pa.map_(pa.string(), pa.int32(), keys_sorted=True))
    yield "dictionary", pa.array(texts).dictionary_encode()
    yield "small dictionary", pa.DictionaryArray.from_arrays(pa.array([None if v is None else v % 2 for v in numbers], pa.uint8()), ["no", "yes"], ordered=True)
    yield "list of dictionaries", pa.ListArray.from_arrays(pa.array(range(n + 1), pa.int32()), pa.array(texts).dictionary_encode())
    ids = pa.array([i % 2 for i in range(n)], pa.int8())
    yield "sparse union", pa.UnionArray.from_sparse(ids, [pa.array(numbers, pa.int32()), pa.array(texts)])
    offsets = pa.array([i // 2 for i in range(n)], pa.int32())
    yield "dense union", pa.UnionArray.from_dense(ids, offsets, [pa.array(numbers, pa.int32()), pa.array(texts)], ["n", "t"], [0, 1])


COLUMNS = dict(columns())


def same(got: pa.Table, want: pa.Table) -> None:
    got.validate(full=True)
    assert got.schema.equals(want.schema, check_metadata=True)
    assert got.equals(want)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type(library: ctypes.CDLL, name: str) -> None:
    array = COLUMNS[name]
    field = pa.field("c", array.type, metadata={"of": "the field"})
    for part in (array, array.slice(0, 0), array.slice(1), array.slice(0, 100), array.slice(77, 21).slice(3), array.slice(200)):
        table = pa.Table.from_arrays([part], schema=pa.schema([field], metadata={"k": "v", "empty": ""}))
        data = to_bytes(library, table)
        same(pa.ipc.open_stream(pa.py_buffer(data)).read_all(), table)
        same(from_bytes(library, data), table)
        same(from_bytes(library, written(table)), table)


def test_whole_tables(library: ctypes.CDLL) -> None:
    array = pa.table(COLUMNS)
    for table in (array, pa.concat_tables([array, array.slice(50, 60), array.slice(0, 0)]), array.slice(7, 9), pa.table({})):
        same(pa.ipc.open_stream(pa.py_buffer(to_bytes(library, table))).read_all(), table)
        same(from_bytes(library, written(table)), table)


def test_slices_take_their_rows(library: ctypes.CDLL) -> None:
    table = pa.table({"n": pa.array(range(1_000_000)), "s": pa.array([str(i) for i in range(1_000_000)])})
    assert len(to_bytes(library, table.slice(500_001, 10))) < 2000


def test_dictionaries_that_change(library: ctypes.CDLL) -> None:
    batches = [pa.record_batch({"d": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c", "a"], ["c"])]
    table = pa.Table.from_batches(batches)
    assert from_bytes(library, to_bytes(library, table)).column("d").to_pylist() == ["a", "b", "c", "a", "c"]


def test_refusals(library: ctypes.CDLL) -> None:
    table = pa.table({"n": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match="compressed"):
        from_bytes(library, sink.getvalue().to_pybytes())
    whole = written(table)
    for data in (b"", b"no stream at all", whole[:8], whole[: len(whole) // 2]):
        with pytest.raises(ValueError, match="malformed Arrow stream"):
            from_bytes(library, data)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["a", "b"]))
    same(from_bytes(library, to_bytes(library, pa.table({"r": runs}))), pa.table({"r": runs}))
    with pytest.raises(ValueError, match="run-end encoded"):
        to_bytes(library, pa.table({"r": runs.slice(1)}))


def test_flipped_bytes_under_sanitizer(tmp_path: Path) -> None:
    """Whatever is in a stream, what is read lies in it and what was made of it is let go."""
    can_sanitize("address", tmp_path)
    program, stream = tmp_path / "fuzz", tmp_path / "stream"
    sources = [HERE / "arrow_fuzz.c", *sorted(CAPI.glob("client*.c")), *sorted(CAPI.glob("abi*.c"))]
    flags = ("-std=gnu11", "-g", "-O1", *WARNINGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{CAPI}", f"-I{CAPI / 'include'}")
    run([*compiler(), *flags, *sources, "-o", program, "-lpthread"])
    small = pa.table(COLUMNS).slice(3, 12)
    stream.write_bytes(written(pa.concat_tables([small, small.slice(2, 5)])))
    assert run([program, stream, "2000"]).splitlines()[-1] == "ok"
