"""Trainers as trials of raygo.tune."""
import os
import tempfile

import pytest

from raygo import train, tune
from raygo.train import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig


def loop(config):
    rank = train.get_context().get_world_rank()
    start = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "i-0")) as file:
            start = int(file.read()) + 1
    for i in range(start, 3):
        if i == 2 and rank == 1 and config.get("mark") and not os.path.exists(config["mark"]):
            open(config["mark"], "w").close()
            os._exit(1)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, f"i-{rank}"), "w") as file:
                file.write(str(i))
            train.report({"loss": config["lr"] * (3 - i), "i": i, "start": start, "size": train.get_context().get_world_size(), "kept": config["kept"]},
                         checkpoint=Checkpoint.from_directory(folder))


def search(tmp_path, space, config=None, **settings):
    trainer = DataParallelTrainer(loop, train_loop_config={"lr": 1.0, "kept": "yes", **(config or {})},
                                  scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}))
    return tune.Tuner(trainer, param_space=space, run_config=tune.RunConfig(storage_path=str(tmp_path), name="search", verbose=0, **settings)).fit()


def test_a_search_over_a_trainer(tmp_path):
    grid = search(tmp_path, {"train_loop_config": {"lr": tune.grid_search([1.0, 2.0])}},
                  checkpoint_config=tune.CheckpointConfig(num_to_keep=2))
    assert grid.num_errors == 0
    assert sorted((r.config["train_loop_config"]["lr"], r.metrics["loss"], r.metrics["size"], r.metrics["kept"], r.metrics["training_iteration"])
                  for r in grid) == [(1.0, 1.0, 2, "yes", 3), (2.0, 2.0, 2, "yes", 3)]
    best = grid.get_best_result("loss", "min")
    assert sorted(os.listdir(best.checkpoint.path)) == ["i-0", "i-1"] and len(best.best_checkpoints) == 2
    with open(os.path.join(best.path, "result.json")) as file:
        assert len(file.readlines()) == 3


def test_the_number_of_workers_as_a_parameter(tmp_path):
    grid = search(tmp_path, {"scaling_config": tune.grid_search([{"num_workers": 1}, ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})])})
    assert grid.num_errors == 0 and sorted(r.metrics["size"] for r in grid) == [1, 2]


def test_a_worker_that_dies_makes_the_trial_start_again(tmp_path):
    grid = search(tmp_path, {}, {"mark": str(tmp_path / "mark")}, failure_config=tune.FailureConfig(max_failures=1))
    assert grid.num_errors == 0
    assert grid[0].metrics["i"] == 2 and grid[0].metrics["start"] == 2 and len(grid[0].best_checkpoints) == 3


def test_names_that_are_not_in_raygo_say_so():
    from raygo.train.horovod import HorovodTrainer

    with pytest.raises(NotImplementedError, match=r"raygo\.train\.horovod\.HorovodTrainer is not in raygo"):
        HorovodTrainer(loop)
    with pytest.raises(ValueError, match="storage_path"):
        __import__("raygo.air").air.RunConfig(local_dir="x")
    assert RunConfig(name="x", storage_path="/y").storage_context.experiment_fs_path == "/y/x"
