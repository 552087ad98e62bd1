"""Trainers as trials of raygo.tune."""
import os
import shutil
import tempfile

import pytest

from raygo import train, tune
from raygo.train import Checkpoint, CheckpointUploadMode, DataParallelTrainer, RunConfig, ScalingConfig, UserCallback, _session
from raygo.train._messages import Place
from raygo.train._worker_group import TrainWorker


def loop(config):
    rank = train.get_context().get_world_rank()
    start = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "i-0")) as file:
            start = int(file.read()) + 1
    for i in range(start, 3):
        if i == 2 and rank == 1 and config.get("mark") and not os.path.exists(config["mark"]):
            train.get_all_reported_checkpoints()          # both ranks have reported 0 and 1
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
    space = ScalingConfig(num_workers=tune.grid_search([0, 1]), resources_per_worker={"CPU": tune.choice([0.5])})
    with pytest.raises(ValueError, match="has a search space in it"):
        DataParallelTrainer(loop, scaling_config=space)
    with pytest.raises(ValueError, match="give it to the Tuner"):
        search(tmp_path, {"run_config": RunConfig(name="lost")})
    grid = search(tmp_path / "inside", {"scaling_config": space})
    assert grid.num_errors == 0 and [r.config["scaling_config"]["num_workers"] for r in grid] == [0, 1] and [r.metrics["i"] for r in grid] == [2, 2]


def write_here(config):
    with open("mine", "x") as file:
        file.write(str(config["n"]))
    if config["n"] == 2:
        open("not-there")
    train.report({"n": config["n"]})


def test_workers_are_in_their_trials_folder(tmp_path):
    def trial(config):
        DataParallelTrainer(write_here, train_loop_config=config, run_config=RunConfig(storage_path=str(tmp_path), name=f"in-{config['n']}")).fit()

    trainer = DataParallelTrainer(write_here, scaling_config=ScalingConfig(resources_per_worker={"CPU": 0.5}))
    for what, space in ((trainer, {"train_loop_config": {"n": tune.grid_search([0, 1, 2])}}), (trial, {"n": tune.grid_search([0, 1])})):
        grid = tune.Tuner(what, param_space=space, run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0)).fit()
        for n, result in enumerate(grid):
            with open(os.path.join(result.path, "mine")) as file:
                assert file.read() == str(n)
        assert grid.num_errors == len(grid) - 2
        if grid.errors:
            assert "a trial runs in its own folder" in str(grid.errors[0])


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


def outside(config):
    """Checkpoints that are not copied into the trial's folder; goes on from the last."""
    start = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "i")) as file:
            start = int(file.read()) + 1
    for i in range(start, 3):
        folder = os.path.join(config["place"], f"made-{i}")
        os.makedirs(folder)
        with open(os.path.join(folder, "i"), "w") as file:
            file.write(str(i))
        if config["how"] == "upload":
            def upload(checkpoint, name):
                return Checkpoint(shutil.copytree(checkpoint.path, os.path.join(config["place"], f"stored-{name}")))

            train.report({"i": i, "start": start}, checkpoint=Checkpoint(folder), checkpoint_upload_fn=upload)
        else:
            train.report({"i": i, "start": start}, checkpoint=Checkpoint(folder), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        if i == 1 and not os.path.exists(config["mark"]):
            train.get_all_reported_checkpoints()
            open(config["mark"], "w").close()
            raise RuntimeError("once")


def function_with_names(config):
    for i in range(2):
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "f"), "w").close()
            train.report({"i": i}, checkpoint=Checkpoint(folder), checkpoint_dir_name=f"mine-{i}")


@pytest.mark.parametrize("how", ["upload", "no upload"])
def test_checkpoints_that_lie_elsewhere(tmp_path, how):
    place = tmp_path / "place"
    place.mkdir()
    trainer = DataParallelTrainer(outside, train_loop_config={"place": str(place), "how": how, "mark": str(tmp_path / "mark")},
                                  scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.5}))
    grid = tune.Tuner(trainer, run_config=tune.RunConfig(storage_path=str(tmp_path), name="search", verbose=0,
                                                         checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
                                                         failure_config=tune.FailureConfig(max_failures=1))).fit()
    assert grid.num_errors == 0 and grid[0].metrics["start"] == 2
    kept = [os.path.basename(checkpoint.path) for checkpoint, _ in grid[0].best_checkpoints]
    with grid[0].checkpoint.as_directory() as folder, open(os.path.join(folder, "i")) as file:
        assert folder.startswith(str(place)) and file.read() == "2"
    assert sorted(kept) == sorted(n for n in os.listdir(place) if n.startswith("stored-" if how == "upload" else "made-")) and len(kept) == 2
    again = tune.Tuner.restore(str(tmp_path / "search"), trainer).get_results()
    assert again[0].checkpoint == grid[0].checkpoint and [m["i"] for _, m in again[0].best_checkpoints] == [1, 2]


def test_a_checkpoint_has_the_name_that_a_trial_gives_it(tmp_path):
    grid = tune.Tuner(function_with_names, run_config=tune.RunConfig(storage_path=str(tmp_path), name="search", verbose=0)).fit()
    assert [os.path.basename(checkpoint.path) for checkpoint, _ in grid[0].best_checkpoints] == ["mine-0", "mine-1"]
    assert sorted(n for n in os.listdir(grid[0].path) if n.startswith("mine")) == ["mine-0", "mine-1"]


class Note(UserCallback):
    def __init__(self, path):
        self.path = path

    def after_report(self, run_context, metrics, checkpoint):
        with open(self.path, "a") as file:
            print(metrics[0]["i"], file=file)


def endless(config):
    for i in range(100):
        train.report({"i": i})


def test_a_trainers_own_settings_count_or_are_named(tmp_path):
    def trainer(**run):
        return DataParallelTrainer(endless, scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.5}),
                                   run_config=RunConfig(callbacks=[Note(str(tmp_path / "notes"))], **run))

    own = trainer(stop={"i": 2}, storage_path=str(tmp_path), name="own", verbose=0)
    grid = tune.Tuner(own.as_trainable()).fit()
    assert grid[0].metrics["i"] == 2 and grid[0].path.startswith(str(tmp_path / "own"))
    assert (tmp_path / "notes").read_text().split()[:3] == ["0", "1", "2"]
    with pytest.warns(UserWarning, match=r"DataParallelTrainer has a RunConfig, and so has the search.*: name, stop of the trainer's does nothing"):
        grid = tune.Tuner(trainer(stop={"i": 1}, name="lost"), run_config=tune.RunConfig(storage_path=str(tmp_path), name="search", verbose=0,
                                                                                         stop={"i": 4})).fit()
    assert grid[0].metrics["i"] == 4 and not (tmp_path / "lost").exists()


def test_a_worker_that_cannot_come_into_the_trials_folder(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setattr(_session, "current", None)
    before = os.getcwd()
    TrainWorker().set_up(Place(0, 1, 0, 1, 0), None, None, 0, {}, str(tmp_path / "elsewhere" / "journal"), str(tmp_path / "file" / "trial"))
    assert os.getcwd() == before and f"{tmp_path}/file/trial: Not a directory" in caplog.text
