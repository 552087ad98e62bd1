"""What `report` may be told, and what training functions may ask."""
import os
import shutil
import sys
import tempfile
import threading
import time

import pytest

import raygo
from raygo import train
from raygo.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    DataParallelTrainer,
    ReportedCheckpointStatus,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    ValidationConfig,
    ValidationTaskConfig,
    _gather,
)
from raygo.train._messages import Ask, Brought, Mailbox, Report, dump, read_journal
from raygo.train.collective import barrier, broadcast_from_rank_zero


def fit(loop, tmp_path, workers=1, config=None, trainer=None, **run):
    return DataParallelTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
                               run_config=RunConfig(storage_path=str(tmp_path), name="run", **run), **(trainer or {})).fit()


def folder_with(name, text):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
    return Checkpoint.from_directory(folder)


def read(checkpoint, name):
    with checkpoint.as_directory() as folder, open(os.path.join(folder, name)) as file:
        return file.read()


def test_a_journal_has_what_the_driver_has_not(tmp_path):
    box = Mailbox(str(tmp_path / "journal"))
    for index in range(3):
        box.put(Report(index, {"x": index}))
    assert [m.index for m in read_journal(str(tmp_path / "journal"))] == [0, 1, 2]
    assert len(box.take()) == 3
    assert len(read_journal(str(tmp_path / "journal"))) == 3         # the answer may still be lost
    box.put(Brought(3, ["a"]))
    assert len(box.take()) == 1 and len(read_journal(str(tmp_path / "journal"))) == 4
    box.put(None)
    taking = threading.Thread(target=box.take)
    taking.start()
    taking.join(10)
    with open(tmp_path / "journal", "ab") as file:
        file.write(b"\x40\0\0\0half")
    assert read_journal(str(tmp_path / "journal"))[-1] == Brought(3, ["a"])
    assert read_journal(str(tmp_path / "absent")) == []


def test_messages_are_as_they_were_when_they_were_left():
    metrics = {"deep": {"x": 1}}
    data = dump(Report(0, metrics))
    metrics["deep"]["x"] = 2
    assert raygo.cloudpickle.loads(data).metrics == {"deep": {"x": 1}}
    assert raygo.cloudpickle.loads(dump(Ask(1, "f", lambda: 7))).value() == 7


def test_async_uploads_come_in_order_and_delete_their_folders(tmp_path):
    def loop(config):
        folders = []
        for i in range(4):
            checkpoint = folder_with("n", str(i))
            folders.append(checkpoint.path)
            train.report({"i": i}, checkpoint=checkpoint, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        train.report({"i": 4})
        return folders

    result = fit(loop, tmp_path)
    assert list(result.metrics_dataframe["i"]) == [0, 1, 2, 3, 4]
    assert [read(c, "n") for c, _ in result.best_checkpoints] == ["0", "1", "2", "3"]
    assert not [folder for folder in result.return_value if os.path.exists(folder)]


def test_an_upload_in_the_background_that_fails_is_raised(tmp_path):
    def loop(config):
        def refuse(checkpoint, name):
            raise OSError(f"{name} is not wanted")

        train.report({}, checkpoint=folder_with("n", "1"), checkpoint_upload_mode=CheckpointUploadMode.ASYNC, checkpoint_upload_fn=refuse)

    with pytest.raises(TrainingFailedError, match="checkpoint_000000 is not wanted"):
        fit(loop, tmp_path)


def test_a_failed_upload_that_the_loop_survives(tmp_path):
    def loop(config):
        def refuse(checkpoint, name):
            raise OSError("not now")

        try:
            train.report({"i": 0}, checkpoint=folder_with("n", "0"), checkpoint_upload_fn=refuse)
        except OSError:
            train.report({"i": 1}, checkpoint=folder_with("n", "1"))

    result = fit(loop, tmp_path)
    assert list(result.metrics_dataframe["i"]) == [0, 1] and [read(c, "n") for c, _ in result.best_checkpoints] == ["1"]


def test_checkpoints_that_the_loop_stores_itself(tmp_path):
    def loop(config):
        def store(checkpoint, name):
            return Checkpoint(shutil.copytree(checkpoint.path, os.path.join(config["place"], name)))

        train.report({"i": 0}, checkpoint=folder_with("n", "0"), checkpoint_upload_fn=store, checkpoint_dir_name="first")
        own = os.path.join(config["place"], "second")
        shutil.copytree(folder_with("n", "1").path, own)
        train.report({"i": 1}, checkpoint=Checkpoint(own + "/"), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        train.report({"i": 2}, checkpoint=folder_with("n", "2"), checkpoint_dir_name="third", delete_local_checkpoint_after_upload=True)

    result = fit(loop, tmp_path, config={"place": str(tmp_path / "own")})
    for each in (result, Result.from_path(result.path)):
        assert [c.path for c, _ in each.best_checkpoints] == [str(tmp_path / "own" / "first"), str(tmp_path / "own" / "second"),
                                                              os.path.join(result.path, "third")]
        assert [(read(c, "n"), m["i"]) for c, m in each.best_checkpoints] == [("0", 0), ("1", 1), ("2", 2)]


def test_a_name_of_its_own_is_found_again(tmp_path):
    def loop(config):
        start = train.get_checkpoint()
        begun = int(read(start, "n")) + 1 if start else 0
        for n in range(begun, begun + 2):
            train.report({"n": n}, checkpoint=folder_with("n", str(n)), checkpoint_dir_name=f"epoch_{n}")

    fit(loop, tmp_path)
    result = fit(loop, tmp_path)
    assert list(result.metrics_dataframe["n"]) == [0, 1, 2, 3]
    for each in (result, Result.from_path(result.path)):
        assert [c.path.rpartition("/")[2] for c, _ in each.best_checkpoints] == [f"epoch_{n}" for n in range(4)]


def test_the_newest_checkpoint_can_be_had_again(tmp_path):
    def loop(config):
        rank, seen = train.get_context().get_world_rank(), [train.get_checkpoint()]
        for n in range(2):
            train.report({"n": n}, checkpoint=folder_with("n", str(n)) if rank == 1 else None)
            barrier()
            seen.append(read(train.get_checkpoint(), "n"))
        train.report({"n": 2})
        return [*seen, read(train.get_checkpoint(), "n")]

    assert fit(loop, tmp_path, workers=2).return_value == [None, "0", "1", "1"]


def test_the_newest_checkpoint_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(_gather, "_OTHERS_S", 0.1)

    def loop(config):
        seen, own = [], folder_with("n", "own")
        train.report({"n": 0}, checkpoint=folder_with("n", "0"))
        barrier()
        if train.get_context().get_world_rank() == 0:
            for n, mode in enumerate([None, CheckpointUploadMode.SYNC, CheckpointUploadMode.NO_UPLOAD], 1):       # rank 1 makes none of these
                train.report({"n": n}, **({} if mode is None else {"checkpoint": own, "checkpoint_upload_mode": mode}))
                seen.append(read(train.get_checkpoint(), "n"))
        barrier()
        return seen

    assert fit(loop, tmp_path, workers=2).return_value == ["0", "0", "own"]


def test_a_rank_that_writes_to_the_checkpoints_folder_itself(tmp_path):
    def loop(config):
        if train.get_context().get_world_rank() == 0:
            train.report({}, checkpoint=folder_with("copied", "0"), checkpoint_dir_name="both")
        else:
            own = train.get_context().get_storage().build_checkpoint_path_from_name("both")
            shutil.copytree(folder_with("written", "1").path, own)
            train.report({}, checkpoint=Checkpoint(own), checkpoint_dir_name="both", checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)

    assert sorted(os.listdir(fit(loop, tmp_path, workers=2).checkpoint.path)) == ["copied", "written"]


def test_one_name_for_all_checkpoints(tmp_path):
    def loop(config):
        for n in range(3):
            train.report({"n": n}, checkpoint=folder_with("n", str(n)), checkpoint_dir_name="latest")

    result = fit(loop, tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=1))
    for each in (result, Result.from_path(result.path)):
        assert read(each.checkpoint, "n") == "2" and [m["n"] for _, m in each.best_checkpoints] == [2]


def test_metrics_that_cannot_be_sent_leave_no_gap(tmp_path):
    def loop(config):
        with pytest.raises(TypeError, match="metric 'n' is a lock, which cannot be sent"):
            train.report({"m": 1, "n": threading.Lock()})
        train.report({"n": 1})

    assert list(fit(loop, tmp_path).metrics_dataframe["n"]) == [1]


def test_a_rank_that_takes_long_for_its_checkpoint_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYGO_TRAIN_REPORT_PATIENCE_S", "0.3")

    def loop(config):
        rank = train.get_context().get_world_rank()
        for n in range(3):
            if rank == 0 and n:
                time.sleep(1.0)
            train.report({"n": n, "rank": rank}, checkpoint=folder_with("n", str(n)) if rank == 0 and n else None)

    result = fit(loop, tmp_path, workers=2)
    assert list(result.metrics_dataframe["rank"]) == [0, 0, 0] and [read(c, "n") for c, _ in result.best_checkpoints] == ["1", "2"]


def test_late_files_leave_the_checkpoint_whole_where_nothing_can_be_renamed(tmp_path, monkeypatch):
    dirfs = pytest.importorskip("fsspec.implementations.dirfs")
    from fsspec.implementations.local import LocalFileSystem

    monkeypatch.setenv("RAYGO_TRAIN_REPORT_PATIENCE_S", "0.3")

    def loop(config):
        rank = train.get_context().get_world_rank()
        if rank == 1:
            while not os.path.exists(config["taken"]):
                time.sleep(0.05)
        train.report({"rank": rank}, checkpoint=folder_with(f"of-{rank}", str(rank)))
        if rank == 0:
            train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
            open(config["taken"], "w").close()

    with pytest.warns(UserWarning, match="rank"):
        result = DataParallelTrainer(
            loop, train_loop_config={"taken": str(tmp_path / "taken")}, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=RunConfig(storage_path="there", storage_filesystem=dirfs.DirFileSystem(str(tmp_path), LocalFileSystem()), name="run")).fit()
    with result.checkpoint.as_directory() as folder:
        assert sorted(os.listdir(folder)) == ["of-0", "of-1"]


def test_what_report_refuses(tmp_path):
    def loop(config):
        for wrong in ({"metrics": 3}, {"metrics": {}, "checkpoint": "path"}, {"metrics": {}, "checkpoint_dir_name": "a/b"},
                      {"metrics": {}, "validation": True}, {"metrics": {}, "checkpoint": folder_with("n", "1"), "validation": "yes"},
                      {"metrics": {}, "checkpoint": folder_with("n", "1"), "validation": True}):
            with pytest.raises((TypeError, ValueError)):
                train.report(**wrong)
        train.report({"fine": True})

    assert fit(loop, tmp_path).metrics["fine"]


def test_validation_beside_training(tmp_path):
    def validate(checkpoint, factor):
        value = int(read(checkpoint, "n"))
        if value == 2:
            raise ValueError("not good")
        return {"accuracy": factor * value}

    def loop(config):
        for i in range(3):
            train.report({"i": i}, checkpoint=folder_with("n", str(i)),
                         validation=ValidationTaskConfig(fn_kwargs={"factor": 100}) if i == 1 else True)
        stored = train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
        done = train.get_all_reported_checkpoints()
        return len(stored), [(r.metrics.get("accuracy"), r.status) for r in done]

    with pytest.warns(UserWarning, match="not good"):
        result = fit(loop, tmp_path, trainer={"validation_config": ValidationConfig(validate, ValidationTaskConfig({"factor": 10}))})
    status = ReportedCheckpointStatus
    assert result.return_value == (3, [(0, status.VALIDATED), (100, status.VALIDATED), (None, status.VALIDATION_FAILED)])
    for seen in (result, Result.from_path(result.path)):
        assert [m.get("accuracy") for _, m in seen.best_checkpoints] == [0, 100, None]


def test_checkpoints_stay_while_they_are_validated_and_count_by_what_that_gives(tmp_path):
    def validate(checkpoint):
        score = int(read(checkpoint, "n"))
        while score < 2 and not os.path.exists(tmp_path / "go"):
            time.sleep(0.01)
        return {"score": -score}

    def loop(config):
        for n in range(3):
            train.report({"n": n}, checkpoint=folder_with("n", str(n)), validation=True)
        there = len(train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED))
        open(tmp_path / "go", "w").close()
        return there

    result = fit(loop, tmp_path, trainer={"validation_config": ValidationConfig(validate, ray_remote_kwargs={"num_cpus": 0.5})},
                 checkpoint_config=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score"))
    assert result.return_value == 3 and [m["n"] for _, m in result.best_checkpoints] == [0] and read(result.checkpoint, "n") == "2"


def test_a_validation_that_takes_too_long_is_ended(tmp_path):
    def validate(checkpoint):
        time.sleep(600)

    def loop(config):
        train.report({}, checkpoint=folder_with("n", "1"), validation=ValidationTaskConfig(timeout_s=0.5))

    with pytest.warns(UserWarning, match="took longer than its timeout_s"):
        result = fit(loop, tmp_path, trainer={"validation_config": ValidationConfig(validate)})
    assert len(result.best_checkpoints) == 1


def test_ranks_wait_for_each_other_and_hear_rank_zero(tmp_path):
    def loop(config):
        rank = train.get_context().get_world_rank()
        for i in range(3):
            barrier()
            assert broadcast_from_rank_zero({"from": rank, "i": i}) == {"from": 0, "i": i}
        return rank

    assert fit(loop, tmp_path, workers=2).return_value == 0


def test_a_rank_that_ends_instead_is_named(tmp_path):
    def loop(config):
        if train.get_context().get_world_rank() == 0:
            barrier()

    with pytest.raises(TrainingFailedError, match=r"barrier: rank\(s\) 1 have ended without calling it"):
        fit(loop, tmp_path, workers=2)


def test_a_run_stops_where_it_was_told_to(tmp_path):
    def loop(config):
        i = 0
        while True:
            i += 1
            train.report({"i": i}, checkpoint=folder_with("n", str(i)))

    result = fit(loop, tmp_path, workers=2, stop={"i": 3})
    assert result.metrics["i"] == 3 and read(result.checkpoint, "n") == "3"


def test_only_the_best_stay_on_the_disk(tmp_path):
    def loop(config):
        for i in range(6):
            train.report({"i": i}, checkpoint=folder_with("n", str(i)))
        return [reported.metrics["i"] for reported in train.get_all_reported_checkpoints()]

    result = fit(loop, tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=2))
    assert result.return_value == [4, 5] and [read(c, "n") for c, _ in result.best_checkpoints] == ["4", "5"]
    assert sorted(n for n in os.listdir(result.path) if n.startswith(("check", "."))) == ["checkpoint_000004", "checkpoint_000005"]


def test_loggers_and_callbacks_of_tune(tmp_path):
    from raygo.tune import Callback

    seen = []

    class Watch(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            seen.append((str(trial), result["i"]))

        def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
            seen.append(os.path.basename(checkpoint.path))

        def on_trial_complete(self, iteration, trials, trial, **info):
            seen.append(trial.status)

    def loop(config):
        train.report({"i": 1}, checkpoint=folder_with("n", "1"))

    result = fit(loop, tmp_path, callbacks=[Watch()])
    name = "_".join(os.path.basename(result.path).split("_")[:3])
    assert seen == [(name, 1), "checkpoint_000000", "TERMINATED"]


def test_the_first_checkpoint_of_all_that_comes_late_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYGO_TRAIN_REPORT_PATIENCE_S", "0.3")

    def loop(config):
        rank = train.get_context().get_world_rank()
        if rank == 1:
            while not os.path.exists(config["taken"]):
                time.sleep(0.05)
        train.report({"rank": rank}, checkpoint=folder_with("late", "it is") if rank == 1 else None)
        if rank == 0:
            train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
            open(config["taken"], "w").close()

    with pytest.warns(UserWarning, match="rank"):
        result = fit(loop, tmp_path, workers=2, config={"taken": str(tmp_path / "taken")})
    assert read(result.checkpoint, "late") == "it is" and result.metrics["checkpoint_dir_name"] == "checkpoint_000000"
    again = Result.from_path(result.path)
    assert read(again.checkpoint, "late") == "it is" and len(again.metrics_dataframe) == 1


def test_a_report_that_the_driver_cannot_read_names_the_rank(tmp_path):
    def loop(config):
        os.makedirs(config["folder"], exist_ok=True)
        with open(os.path.join(config["folder"], "only_in_the_worker.py"), "w") as file:
            file.write("class Odd:\n    pass\n")
        sys.path.insert(0, config["folder"])
        from only_in_the_worker import Odd

        if train.get_context().get_world_rank() == 1:
            train.report({"odd": Odd()})
        else:
            train.report({"fine": 1})

    with pytest.raises(TrainingFailedError, match=r"rank 1 .* failed: .*what rank 1 reported cannot be read in the driver: ModuleNotFound.*only_in_the"):
        fit(loop, tmp_path, workers=2, config={"folder": str(tmp_path / "modules")})


def test_what_cannot_be_tidied_up_does_not_hide_why_a_run_failed(tmp_path, caplog):
    """The run's folder is taken away from under it."""
    def loop(config):
        trial = train.get_context().get_storage().trial_fs_path
        os.makedirs(os.path.dirname(trial), exist_ok=True)
        shutil.rmtree(trial)
        with open(trial, "w"):
            pass
        raise ArithmeticError("the reason")

    with pytest.raises(TrainingFailedError, match="ArithmeticError: the reason"):
        fit(loop, tmp_path)
    assert "could not be removed" in caplog.text
