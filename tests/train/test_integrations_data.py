"""Datasets that a trainer hands to its workers."""
import pytest

import raygo.data
import raygo.train
from raygo.train import DataConfig, DataParallelTrainer, RunConfig, ScalingConfig

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(300)


def fit(loop, tmp_path, workers=2, **kwargs):
    return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=workers), run_config=RunConfig(storage_path=str(tmp_path)), **kwargs).fit()


def report_rows(*names):
    def loop():
        rows = {name: [row["id"] for row in raygo.train.get_dataset_shard(name).iter_rows()] for name in names}
        raygo.train.report({"rows": rows, "rank": raygo.train.get_context().get_world_rank()})

    return loop


def test_each_worker_gets_a_part_and_all_of_what_is_not_split(tmp_path):
    seen = []

    class Watch(raygo.train.UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.extend(metrics)

    datasets = {"train": raygo.data.range(9).map(lambda row: {"id": row["id"] * 2}), "valid": lambda: raygo.data.range(3)}
    DataParallelTrainer(report_rows("train", "valid"), datasets=datasets, dataset_config=DataConfig(datasets_to_split=["train"]),
                        scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=str(tmp_path), callbacks=[Watch()])).fit()
    a, b = (one["rows"] for one in sorted(seen, key=lambda one: one["rank"]))
    assert a["valid"] == b["valid"] == [0, 1, 2]
    assert a["train"] == [0, 2, 4, 6] and b["train"] == [8, 10, 12, 14]      # as many for each: one row is left over


def test_workers_may_take_all_cpus_that_the_plan_needed(tmp_path):
    def loop():
        table = raygo.train.get_dataset_shard("train").materialize().to_pandas()
        raygo.train.report({"rows": len(table), "alone": len(list(raygo.train.get_dataset_shard().iter_rows()))})

    metrics = fit(loop, tmp_path, workers=4, datasets={"train": raygo.data.range(8).map(lambda row: row)}).metrics
    assert metrics["rows"] == metrics["alone"] == 2


def test_a_dataset_that_is_not_there_is_named(tmp_path):
    def loop():
        for name, text in (("trian", "there is no dataset 'trian'; the trainer was given other, train"), (None, "which one")):
            with pytest.raises(KeyError, match=text):
                raygo.train.get_dataset_shard(name)
        raygo.train.report({"done": 1})

    assert fit(loop, tmp_path, 1, datasets={"train": raygo.data.range(1), "other": raygo.data.range(1)}).metrics["done"] == 1
    with pytest.raises(ValueError, match="names trian, but the trainer was given train"):
        fit(loop, tmp_path, 1, datasets={"train": raygo.data.range(1)}, dataset_config=DataConfig(datasets_to_split=["trian"]))


def test_a_config_of_ones_own_may_bring_the_datasets(tmp_path):
    class Own(DataConfig):
        def __init__(self, parts):
            self.parts = parts

        def configure(self, datasets, world_size, worker_handles=None, worker_node_ids=None, **kwargs):
            return [{"train": raygo.data.range(3).iterator()}] * self.parts

    assert fit(report_rows("train"), tmp_path, dataset_config=Own(2)).metrics["rows"]["train"] == [0, 1, 2]
    with pytest.raises(ValueError, match="Own.configure gave datasets for 1 workers, of which there are 2"):
        fit(report_rows("train"), tmp_path, dataset_config=Own(1))
