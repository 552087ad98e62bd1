"""Datasets: making, transforming, ordering, splitting and reading them."""
import re

import pytest

import raygo.data
from raygo.data import DataIterator, MaterializedDataset
from raygo.exceptions import RayTaskError

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(300)  # the first task imports pyarrow and pandas


def ids(dataset):
    return [row["id"] for row in dataset.iter_rows()]


# ---- making


def test_range_has_its_numbers_in_order():
    dataset = raygo.data.range(10, override_num_blocks=3)
    assert ids(dataset) == list(range(10)) and dataset.count() == 10 and dataset.columns() == ["id"]
    assert dataset.materialize().num_blocks() == 3 and raygo.data.range(0).take_all() == []


def test_items_become_rows():
    assert raygo.data.from_items([1, "b"], override_num_blocks=2).take_all() == [{"item": 1}, {"item": "b"}]
    assert raygo.data.from_items([{"a": 1}, {"a": 2, "b": "x"}], override_num_blocks=1).take_all() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_frames_and_tables_come_back_as_they_were():
    frame = pd.DataFrame({"a": [1.5, float("nan"), 2], "b": ["x", "y", None], "c": pd.Categorical(["u", "v", "u"])}, index=[7, 8, 9])
    back = raygo.data.from_pandas([frame[:1], frame[1:]]).to_pandas()
    assert back["a"].tolist()[::2] == [1.5, 2.0] and back["b"].tolist()[:2] == ["x", "y"] and back["b"].isna().tolist() == [False, False, True]
    assert back["c"].tolist() == ["u", "v", "u"] and list(back.index) == [0, 1, 2]
    table = pa.table({"x": [1, 2, 3], "y": [[1], [2, 3], []]})
    assert raygo.data.from_arrow(table, override_num_blocks=2).take_all() == table.to_pylist()


def test_arrays_of_any_shape_are_columns():
    array = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    dataset = raygo.data.from_numpy([array[:1], array[1:]])
    (batch,) = dataset.iter_batches(batch_size=10)
    assert batch["data"].dtype == np.float32 and (batch["data"] == array).all()
    (batch,) = dataset.map_batches(lambda b: {"data": b["data"] * 2}).iter_batches(batch_size=10)
    assert (batch["data"] == array * 2).all() and len(dataset.random_shuffle().take_all()) == 4
    assert dataset.to_pandas()["data"][2].tolist() == array[2].tolist()


def test_objects_that_arrow_has_no_type_for_stay_objects():
    rows = raygo.data.range(3, override_num_blocks=2).map(lambda row: {"id": row["id"], "what": object if row["id"] else 1j}).take_all()
    assert rows[0] == {"id": 0, "what": 1j} and rows[2]["what"] is object


# ---- transforms


def test_transforms_run_when_rows_are_asked_for(tmp_path):
    def mark(row):
        (tmp_path / f"ran-{row['id']}").touch()
        return {"id": row["id"] + 1}

    dataset = raygo.data.range(4, override_num_blocks=2).map(mark)
    assert not list(tmp_path.iterdir())
    assert ids(dataset) == [1, 2, 3, 4] and len(list(tmp_path.iterdir())) == 4


def test_map_filter_flat_map_and_columns():
    dataset = raygo.data.range(6, override_num_blocks=2).map(lambda row, by: {"id": row["id"] * by}, fn_args=[10])
    assert ids(dataset.filter(lambda row: row["id"] % 20 == 0)) == [0, 20, 40]
    assert ids(dataset.filter(lambda row: row["id"] == 1000)) == []
    assert ids(dataset.flat_map(lambda row: [row] * (row["id"] // 20))) == [20, 30, 40, 40, 50, 50]
    wider = dataset.add_column("half", lambda frame: frame["id"] / 2).rename_columns({"id": "n"})
    assert wider.take(2) == [{"n": 0, "half": 0.0}, {"n": 10, "half": 5.0}] and wider.select_columns("half").columns() == ["half"]
    assert wider.drop_columns(["half"]).columns() == ["n"]


@pytest.mark.parametrize("form, kind", [("numpy", dict), ("pandas", pd.DataFrame), ("pyarrow", pa.Table)])
def test_batches_in_every_format(form, kind):
    def see(batch):
        assert isinstance(batch, kind)
        return {"rows": np.array([len(batch["id"])])}

    sizes = [row["rows"] for row in raygo.data.range(10, override_num_blocks=2).map_batches(see, batch_size=3, batch_format=form).take_all()]
    assert sizes == [3, 2, 3, 2]
    batches = list(raygo.data.range(10, override_num_blocks=3).iter_batches(batch_size=4, batch_format=form))
    assert [len(b["id"]) for b in batches] == [4, 4, 2] and all(isinstance(b, kind) for b in batches)
    assert len(list(raygo.data.range(10).iter_batches(batch_size=4, batch_format=form, drop_last=True))) == 2


def test_a_function_may_give_several_batches_and_write_to_a_copy():
    def halves(batch):
        batch["id"] += 1
        yield {"id": batch["id"][:1]}
        yield {"id": batch["id"][1:]}

    assert ids(raygo.data.range(5, override_num_blocks=2).materialize().map_batches(halves, zero_copy_batch=False)) == [1, 2, 3, 4, 5]


def test_an_error_in_a_function_reaches_the_caller():
    def fail(row):
        raise KeyError(f"no shelf for {row['id']}")

    with pytest.raises((KeyError, RayTaskError), match="no shelf for 0"):
        raygo.data.range(2, override_num_blocks=1).map(fail).take_all()
    with pytest.raises((ValueError, RayTaskError), match="give a dict for every row"):
        raygo.data.range(2).map(lambda row: row["id"]).take_all()
    with pytest.raises((ValueError, RayTaskError), match="different lengths"):
        raygo.data.range(2).map_batches(lambda batch: {"a": [1], "b": [1, 2]}).take_all()


def test_limit_and_take():
    dataset = raygo.data.range(1000, override_num_blocks=10)
    assert [row["id"] for row in dataset.take(5)] == [0, 1, 2, 3, 4] and dataset.limit(250).count() == 250 and dataset.take(0) == []
    assert dataset.take_batch(3)["id"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="more than limit=10"):
        dataset.take_all(limit=10)


# ---- order and parts


def test_random_shuffle_gives_all_rows_in_another_order():
    dataset = raygo.data.range(100, override_num_blocks=4)
    first, again, other = (ids(dataset.random_shuffle(seed=seed)) for seed in (1, 1, 2))
    assert sorted(first) == list(range(100)) and first == again and first != other and first != list(range(100))


def test_sort_over_blocks_with_nulls_last():
    values = [5, 3, None, 9, 1, 7, 3, None, 8, 2]
    dataset = raygo.data.from_items([{"v": v, "n": n} for n, v in enumerate(values)], override_num_blocks=4)
    assert [row["v"] for row in dataset.sort("v").iter_rows()] == [1, 2, 3, 3, 5, 7, 8, 9, None, None]
    assert [row["v"] for row in dataset.sort("v", descending=True).iter_rows()] == [9, 8, 7, 5, 3, 3, 2, 1, None, None]
    both = [(row["v"], row["n"]) for row in dataset.sort(["v", "n"], descending=[False, True]).iter_rows()]
    assert both[2:4] == [(3, 6), (3, 1)]
    with pytest.raises((ValueError, RayTaskError), match="there is no column 'w'"):
        dataset.sort("w").take_all()


def test_repartition_and_union_keep_the_order():
    dataset = raygo.data.range(10, override_num_blocks=4).repartition(3).materialize()
    assert dataset.num_blocks() == 3 and ids(dataset) == list(range(10))
    assert raygo.data.range(2).repartition(5).materialize().num_blocks() == 5
    assert ids(raygo.data.range(2).union(raygo.data.range(3))) == [0, 1, 0, 1, 2]


def test_parts():
    dataset = raygo.data.range(11, override_num_blocks=3)
    assert [part.count() for part in dataset.split(3)] == [3, 4, 4]
    equal = dataset.streaming_split(3, equal=True)
    assert [len(list(part.iter_rows())) for part in equal] == [3, 3, 3] and all(isinstance(part, DataIterator) for part in equal)
    assert [ids(part) for part in dataset.split_at_indices([2, 2, 20])] == [[0, 1], [], list(range(2, 11)), []]
    assert [part.count() for part in raygo.data.range(10).split_proportionately([0.2, 0.5])] == [2, 5, 3]
    train, test = dataset.train_test_split(0.3)
    assert ids(train) == list(range(8)) and ids(test) == [8, 9, 10]
    train, test = dataset.train_test_split(4, shuffle=True, seed=3)
    assert test.count() == 4 and sorted(ids(train) + ids(test)) == list(range(11)) and ids(test) != [7, 8, 9, 10]


# ---- reading


def test_an_iterator_works_in_a_task_and_can_be_read_again():
    @raygo.remote
    def read(iterator):
        return [ids(iterator) for _ in range(2)]

    part = raygo.data.range(6, override_num_blocks=2).map(lambda row: {"id": -row["id"]}).streaming_split(2)[1]
    assert raygo.get(read.remote(part)) == [[-3, -4, -5]] * 2


def test_torch_batches():
    torch = pytest.importorskip("torch")
    dataset = raygo.data.from_pandas(pd.DataFrame({"x": [1.0, 2, 3], "y": [0, 1, 1]}))
    first, second = dataset.iter_torch_batches(batch_size=2, dtypes={"x": torch.float32})
    assert first["x"].dtype == torch.float32 and first["y"].dtype == torch.int64 and second["x"].tolist() == [3.0]
    first["x"].add_(1)  # it is the reader's own
    assert dataset.take(1) == [{"x": 1.0, "y": 0}]
    (whole,) = dataset.iter_torch_batches(batch_size=None, collate_fn=lambda arrays: torch.as_tensor(arrays["x"].sum()))
    assert float(whole) == 6
    with pytest.raises(TypeError, match="column 'item'"):
        list(raygo.data.from_items(["a"]).iter_torch_batches())


def test_local_shuffle_mixes_and_loses_nothing():
    dataset = raygo.data.range(100, override_num_blocks=5)
    seen = [list(map(int, np.concatenate([b["id"] for b in dataset.iter_batches(batch_size=8, local_shuffle_buffer_size=20, local_shuffle_seed=seed)])))
            for seed in (0, 0, 1)]
    assert sorted(seen[0]) == list(range(100)) and seen[0] == seen[1] != seen[2] and seen[0] != list(range(100))


def test_files(tmp_path):
    import pyarrow.csv
    import pyarrow.parquet

    for i in range(3):
        table = pa.table({"a": [i, i + 10], "b": [str(i), "x"]})
        pyarrow.parquet.write_table(table, tmp_path / f"{i}.parquet")
        pyarrow.csv.write_csv(table, tmp_path / f"{i}.csv")
    (tmp_path / "l.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "m.json").write_text('[{"a": 3}, {"a": 4}]')
    dataset = raygo.data.read_parquet(str(tmp_path), columns=["a"])
    assert [row["a"] for row in dataset.take_all()] == [0, 10, 1, 11, 2, 12]
    assert raygo.data.read_csv([str(tmp_path / "1.csv")], include_paths=True).take(1) == [{"a": 1, "b": "1", "path": str(tmp_path / "1.csv")}]
    assert [row["a"] for row in raygo.data.read_json(str(tmp_path)).take_all()] == [1, 2, 3, 4]
    assert raygo.data.read_parquet(f"file://{tmp_path}/2.parquet", override_num_blocks=2).materialize().num_blocks() == 2
    with pytest.raises(FileNotFoundError, match="absent"):
        raygo.data.read_csv(str(tmp_path / "absent"))
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises((ValueError, RayTaskError), match=re.escape(f"{tmp_path}/bad.parquet could not be read")):
        raygo.data.read_parquet(str(tmp_path / "bad.parquet")).take_all()


# ---- what is wrong or missing


def test_what_is_missing_is_named():
    dataset = raygo.data.range(1)
    with pytest.raises(AttributeError, match="Dataset.groupby is not there yet"):
        dataset.groupby("id")
    with pytest.raises(AttributeError, match="raygo.data.read_images is not there yet"):
        raygo.data.read_images("x")
    with pytest.raises(NotImplementedError, match="compute"):
        dataset.map(lambda row: row, compute=object())

    class Model:
        def __call__(self, batch):
            return batch

    with pytest.raises(NotImplementedError, match="class \\(Model\\)"):
        dataset.map_batches(Model)


def test_bad_arguments_fail_at_the_call():
    dataset = raygo.data.range(1)
    for call in (lambda: dataset.map_batches(len, batch_format="list"), lambda: dataset.map_batches(len, batch_size=0), lambda: dataset.repartition(0),
                 lambda: dataset.limit(-1), lambda: dataset.split(0), lambda: dataset.iter_batches(batch_size=0), lambda: dataset.sort([]),
                 lambda: dataset.split_at_indices([3, 1]), lambda: raygo.data.range(-1), lambda: dataset.map(len, num_cpus=-1)):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="not iterated"):
        iter(dataset)


def test_a_materialized_dataset_says_what_it_has():
    text = repr(raygo.data.range(3, override_num_blocks=1).materialize())
    assert text == "MaterializedDataset(num_blocks=1, num_rows=3, schema={id: int64})"
    assert isinstance(raygo.data.from_items([1]), MaterializedDataset)
    assert "id" in repr(raygo.data.range(3).schema())
