"""Arrow data and pandas frames of Arrow columns: what comes back, from where its memory is, and what a slice costs."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raygo
from raygo import _binding

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.usefixtures("session")
N = 20_000
ARROW = 4  # RG_B_ARROW


class Celsius(pa.ExtensionType):
    """Degrees, with a unit that travels as metadata."""

    def __init__(self, unit: str = "C") -> None:
        self.unit = unit
        super().__init__(pa.float64(), "raygo.test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.unit.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls(serialized.decode())


@raygo.remote
def same(value: Any) -> Any:
    return value


def make_table() -> pa.Table:
    when = datetime.datetime(2026, 1, 1)
    return pa.table(
        {
            "int": pa.array(range(N)),
            "holes": pa.array([None if i % 7 == 0 else f"text {i}" for i in range(N)]),
            "large": pa.array(["same"] * N, pa.large_string()),
            "view": pa.array(["short", "longer than twelve bytes"] * (N // 2), pa.string_view()),
            "words": pa.array(["red", "green", None, "blue"] * (N // 4)).dictionary_encode(),
            "nested": pa.array([[[1, 2], None, [3]], []] * (N // 2)),
            "bool": pa.array([True, None] * (N // 2)),
            "when": pa.array([when] * N, pa.timestamp("us", "UTC")),
            "fixed": pa.array([b"123"] * N, pa.binary(3)),
            "record": pa.array([{"x": 1, "y": "z"}, None] * (N // 2)),
            "map": pa.array([[("k", 1)]] * N, pa.map_(pa.string(), pa.int32())),
            "nothing": pa.nulls(N),
            "decimal": pa.array([None, 1] * (N // 2), pa.decimal128(20, 2)),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([N // 2, N], pa.int32()), pa.array(["a", "b"])),
            "union": pa.UnionArray.from_dense(pa.array([0, 1] * (N // 2), pa.int8()), pa.array([i // 2 for i in range(N)], pa.int32()),
                                              [pa.array(range(N // 2)), pa.array(["u"] * (N // 2))]),
        }
    ).replace_schema_metadata({"origin": "test"})


TABLE = make_table()
CHUNKS = pa.chunked_array([["a", "b"], [], ["c", None]])
VALUES = {
    "table": TABLE,
    "slice": TABLE.slice(501, 99),
    "no rows": TABLE.slice(0, 0),
    "no columns": pa.table({}),
    "chunks": pa.concat_tables([TABLE.slice(3, 1000), TABLE.slice(9999, 1001)]),
    "other dictionaries": pa.table({"d": pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()])}),
    "batch": TABLE.to_batches()[0],
    "batch of no rows": TABLE.to_batches()[0].slice(0, 0),
    "column": TABLE["nested"],
    "column in chunks": CHUNKS,
    "column without chunks": pa.chunked_array([], pa.int8()),
    "array": TABLE["holes"].chunk(0),
    "array's slice": TABLE["nested"].chunk(0).slice(7, 70),
    "array of dictionary": TABLE["words"].chunk(0),
    "names twice": pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"]),
}


def buffers(value: Any) -> Iterator[pa.Buffer]:
    """All memory that Arrow data stands in."""
    if isinstance(value, pd.DataFrame):
        value = [value.iloc[:, i].array.__arrow_array__() for i in range(value.shape[1])]
    elif isinstance(value, (pa.Table, pa.RecordBatch)):
        value = value.columns
    elif isinstance(value, pa.ChunkedArray):
        value = value.chunks
    if isinstance(value, list):
        for each in value:
            yield from buffers(each)
        return
    if isinstance(value, pa.DictionaryArray):
        yield from buffers(value.dictionary)
    yield from (buffer for buffer in value.buffers() if buffer is not None and buffer.size)


def used() -> int:
    return int(raygo._calls.call("store.stats")["used"])


def settled(eventually: Any, figure: int) -> None:
    eventually(lambda: used() == figure)


@pytest.mark.parametrize("name", VALUES)
def test_comes_back_the_same(name: str) -> None:
    value = VALUES[name]
    ways = raygo.get([raygo.put(value), same.remote(value), same.remote(raygo.put(value)), raygo.put({"k": [value]})])
    for got in (*ways[:3], ways[3]["k"][0]):
        assert type(got) is type(value)
        got.validate(full=True)
        assert got.equals(value)
        if isinstance(value, (pa.Table, pa.RecordBatch)):
            assert got.schema.equals(value.schema, check_metadata=True)
    assert _binding.serialize(value)[0] == ARROW


@pytest.mark.parametrize("name", ["table", "chunks", "batch", "column", "array"])
def test_nothing_is_copied(name: str) -> None:
    ref = raygo.put(VALUES[name])
    before = pa.total_allocated_bytes()
    one, two = raygo.get([ref, ref])
    assert pa.total_allocated_bytes() == before
    places = [buffer.address for buffer in buffers(one)]
    assert places and places == [buffer.address for buffer in buffers(two)]
    assert not any(buffer.is_mutable for buffer in buffers(one))


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_rows_without_columns_are_counted(make: Any) -> None:
    value = make({"a": [1, 2, 3]}).select([])
    assert value.num_rows == 3
    for got in (raygo.get(raygo.put(value)), raygo.get(same.remote(value)), raygo.get(raygo.put([value]))[0]):
        assert got.num_rows == 3 and got.equals(value)


def test_buffers_begin_at_multiples_of_64() -> None:
    for name in ("table", "slice", "chunks"):
        assert {buffer.address % 64 for buffer in buffers(raygo.get(raygo.put(VALUES["chunks"] if name == "slice" else VALUES[name])))} == {0}


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": (v, 1)}], ids=["alone", "list", "dict"])
@pytest.mark.parametrize("name", ["table", "batch", "column", "array"])
def test_a_slice_takes_its_rows_only(name: str, wrap: Any) -> None:
    """Arrow's own format for views of strings is the exception: all that an array's views may point to goes with it."""
    value = VALUES[name].drop_columns(["view"]) if name in ("table", "batch") else VALUES[name]
    ten = value.slice(1000, 10)
    assert len(_binding.dumps(wrap(ten))) < 16_000
    if name != "column":
        assert len(_binding.dumps(wrap(VALUES[name]))) > 100_000


def test_nested_data_is_not_copied() -> None:
    ref = raygo.put([TABLE, {"x": TABLE["nested"]}])
    before = pa.total_allocated_bytes()
    one, two = raygo.get(ref), raygo.get(ref)
    assert pa.total_allocated_bytes() - before < 64 << 10  # views of strings are laid out anew
    assert [b.address for b in buffers(one[1]["x"])] == [b.address for b in buffers(two[1]["x"])]


def test_an_extension_type_of_python_is_known_to_whoever_reads() -> None:
    """Not registered here, nor in the worker, nor in a fresh driver."""
    value = pa.table({"t": pa.ExtensionArray.from_storage(Celsius("K"), pa.array([1.5, None]))})

    @raygo.remote
    def unit(table: Any) -> tuple[str, str, Any]:
        kind = table.schema.field("t").type
        return type(kind).__name__, kind.unit, table["t"].to_pylist()

    assert raygo.get(unit.remote(raygo.put(value))) == ("Celsius", "K", [1.5, None])
    got = raygo.get(same.remote(value))
    assert got.equals(value) and got.schema.field("t").type.unit == "K"


def test_extension_types_of_arrow() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24.0).reshape(4, 3, 2))
    value = pa.table({"tensor": tensors, "uuid": pa.array([b"0123456789abcdef"] * 4, pa.uuid())})
    assert raygo.get(same.remote(value)).equals(value)


# ---- pandas


def make_frame() -> pd.DataFrame:
    frame = TABLE.select(["int", "holes", "large", "nested", "bool", "when", "words", "decimal"]).to_pandas(types_mapper=pd.ArrowDtype)
    frame["string"] = pd.array(["a", None] * (N // 2), dtype="string[pyarrow]")
    frame["str"] = pd.array(["a", None] * (N // 2), dtype=pd.StringDtype("pyarrow", na_value=np.nan))
    return frame


FRAME = make_frame()
INDEXES = {
    "range": pd.RangeIndex(5, 5 + 3 * N, 3, name="r"),
    "numbers": pd.Index(np.arange(N) * 2.5, name="n"),
    "dates": pd.date_range("2020-01-01", periods=N, freq="h", tz="Europe/Berlin"),
    "levels": pd.MultiIndex.from_product([["a", "b"], range(N // 2)], names=["one", None]),
    "arrow": pd.Index(pa.array(range(N)).to_pandas(types_mapper=pd.ArrowDtype), dtype=pd.ArrowDtype(pa.int64())),
}


@pytest.mark.parametrize("index", INDEXES)
def test_a_frame_of_arrow_columns_comes_back_the_same(index: str) -> None:
    frame = FRAME.set_axis(INDEXES[index])
    frame.attrs["source"] = {"file": "x"}
    for value in (frame, frame.iloc[10:20], frame.iloc[:0]):
        assert _binding.serialize(value)[0] == ARROW
        for got in (raygo.get(raygo.put(value)), raygo.get(same.remote(value)), raygo.get(raygo.put([value]))[0]):
            pd.testing.assert_frame_equal(got, value, check_freq=True)
            assert list(got.dtypes) == list(value.dtypes)
            assert type(got.index) is type(value.index) and got.index.names == value.index.names
            assert got.attrs == value.attrs


def test_a_frame_of_arrow_columns_is_not_copied() -> None:
    ref = raygo.put(FRAME)
    before = pa.total_allocated_bytes()
    one, two = raygo.get([ref, ref])
    assert pa.total_allocated_bytes() == before
    assert [buffer.address for buffer in buffers(one)] == [buffer.address for buffer in buffers(two)]
    one.loc[0, "int"] = -1  # pandas writes into memory of its own
    assert raygo.get(ref)["int"][0] == 0
    assert len(_binding.dumps(FRAME.iloc[5:10])) < 16_000


def test_flags_of_a_frame() -> None:
    strict = FRAME.set_flags(allows_duplicate_labels=False)
    assert raygo.get(raygo.put(strict)).flags.allows_duplicate_labels is False


def test_frames_of_numpy_columns_are_views() -> None:
    frame = pd.DataFrame({"a": np.arange(N), "b": np.random.rand(N), "s": pd.array(["x"] * N, dtype="string[pyarrow]")})
    ref = raygo.put(frame)
    before = pa.total_allocated_bytes()
    one, two = raygo.get([ref, ref])
    assert pa.total_allocated_bytes() == before
    pd.testing.assert_frame_equal(one, frame)
    for column in ("a", "b"):
        here, there = one[column].to_numpy(), two[column].to_numpy()
        assert here.ctypes.data == there.ctypes.data and not here.flags.writeable


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame(), pd.DataFrame({"a": pd.array([1], dtype="int64[pyarrow]"), "b": [2]}), pd.DataFrame({0: pd.array([1], dtype="int64[pyarrow]")})],
    ids=["empty", "mixed", "labels that are no text"],
)
def test_other_frames_are_pickled(frame: pd.DataFrame) -> None:
    assert _binding.serialize(frame)[0] != ARROW
    pd.testing.assert_frame_equal(raygo.get(raygo.put(frame)), frame)


# ---- what keeps the memory


def _raises(table: Any) -> None:
    view = table["int"]
    raise KeyError(len(view))


def test_memory_goes_with_the_last_view(eventually: Any) -> None:
    begin = used()
    ref = raygo.put(TABLE)
    column = raygo.get(ref)["int"].chunk(0)
    full = used()
    assert full > begin
    del ref
    assert raygo.get(same.remote(1)) == 1 and column[N - 1].as_py() == N - 1
    assert used() == full
    del column
    settled(eventually, begin)


def test_memory_goes_after_an_exception(eventually: Any) -> None:
    begin = used()
    try:
        _raises(raygo.get(raygo.put(TABLE)))
    except KeyError as error:
        assert error.__traceback__ is not None and used() > begin
    settled(eventually, begin)


def test_memory_goes_with_a_closed_generator(eventually: Any) -> None:
    def rows() -> Iterator[Any]:
        table = raygo.get(raygo.put(TABLE))
        yield from table["int"]

    begin = used()
    generator = rows()
    assert next(generator).as_py() == 0 and used() > begin
    generator.close()
    settled(eventually, begin)


def test_memory_goes_with_a_thread(eventually: Any) -> None:
    import threading

    local = threading.local()

    def hold() -> None:
        local.table = raygo.get(raygo.put(TABLE))

    begin = used()
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    settled(eventually, begin)


def test_memory_goes_with_a_tasks_locals(eventually: Any) -> None:
    @raygo.remote
    def fails(table: Any) -> None:
        _raises(table)

    begin = used()
    with pytest.raises(raygo.exceptions.RayTaskError):
        raygo.get(fails.remote(raygo.put(TABLE)))
    settled(eventually, begin)


def test_an_interpreter_may_end_with_views(driver: Any) -> None:
    """In the order in which modules, threads and the session go."""
    source = """
        import atexit, sys, threading
        import pyarrow as pa
        import raygo
        raygo.init(num_cpus=1, object_store_memory=100 << 20)
        table = pa.table({"x": range(100_000)})
        held = raygo.get(raygo.put(table))
        if sys.argv[1] == "shutdown":
            raygo.shutdown()
            assert held.equals(table)
        elif sys.argv[1] == "atexit":
            atexit.register(lambda: print(held["x"][99_999]))
        elif sys.argv[1] == "raise":
            batch = held.to_batches()[0]
            raise SystemExit(0)
        elif sys.argv[1] == "cycle":
            held = [held]; held.append(held)
    """
    for way in ("shutdown", "atexit", "raise", "cycle", "plain"):
        done = driver(source, way)
        assert done.stderr == ""
        assert done.stdout == ("99999\n" if way == "atexit" else "")


def test_the_package_imports_no_library_of_arrays() -> None:
    code = "import raygo, sys; assert not {'numpy', 'pyarrow', 'pandas', 'torch', 'cloudpickle', 'json', 're'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- torch


def test_tensors_got_twice_take_no_memory_of_their_own() -> None:
    """Each get maps the tensor's pages for itself, copied only where they are written.

    A worker looks: the engine, which populates memory ahead, is in the driver.
    """
    torch = pytest.importorskip("torch")
    size = 32 << 20
    ref = raygo.put(torch.arange(size // 8))

    @raygo.remote
    def growth(refs: list) -> tuple[int, int]:
        def memory() -> tuple[int, int]:
            lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
            figures = dict(line.split()[:2] for line in lines[1:])
            return int(figures["Pss:"]) << 10, int(figures["Private_Dirty:"]) << 10

        first = raygo.get(refs[0])
        total = int(first.sum())
        before = memory()
        others = [raygo.get(refs[0]) for _ in range(3)]
        assert [int(other.sum()) for other in others] == [total] * 3
        after = memory()
        others[0][0] = 7
        assert others[1][0] == 0 and first[0] == 0
        return after[0] - before[0], after[1] - before[1]

    proportional, private = raygo.get(growth.remote([ref]), timeout=120)
    assert proportional < size // 2, "memory grows by less than half of one tensor of three"
    assert private < size // 2
