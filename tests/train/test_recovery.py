"""Runs go on after workers or the driver were killed, and after they were interrupted."""
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import pytest
import s3

import raygo
from raygo import train
from raygo.train import Checkpoint, DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from raygo.util.state import list_actors


def save(i, metrics=None):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "i"), "w") as file:
            file.write(str(i))
        train.report({"i": i, **(metrics or {})}, checkpoint=Checkpoint.from_directory(folder))


def start():
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder, open(os.path.join(folder, "i")) as file:
        return int(file.read()) + 1


HEAD = """
import os, sys, tempfile, time
import raygo
from raygo import train
from raygo.train import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig

""" + inspect.getsource(save) + inspect.getsource(start)


def fit(loop, tmp_path, workers=2, config=None, **run):
    return DataParallelTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
                               run_config=RunConfig(**{"storage_path": str(tmp_path), "name": "run", **run})).fit()


def driver(tmp_path, body, storage):
    """A script that trains in a process of its own, and says so when its second report is complete."""
    script = tmp_path / "driver.py"
    script.write_text(HEAD + textwrap.dedent(body))
    return subprocess.Popen([sys.executable, str(script), storage], stdout=subprocess.PIPE, text=True)


ENDLESS = """
    from raygo.train import UserCallback

    class Watch(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            if metrics[0]["i"] == 1:
                print("two", *[m["pid_of"] for m in metrics], flush=True)

    def loop(config):
        for i in range(start(), 2):
            save(i, {"pid_of": os.getpid()})
        time.sleep(600)

    raygo.init(num_cpus=2, log_to_driver=False)
    trainer = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2),
                                  run_config=RunConfig(storage_path=sys.argv[1], name="run", callbacks=[Watch()]))
    try:
        trainer.fit()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(3)
    except SystemExit as error:
        print("ended with", error.code, flush=True)
        sys.exit(4)
"""


def gone(pids):
    deadline = time.monotonic() + 20
    while (left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def ended_by(tmp_path, how, storage):
    process = driver(tmp_path, ENDLESS, storage)
    try:
        words = process.stdout.readline().split()
        assert words and words[0] == "two"
        process.send_signal(how)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert gone([int(pid) for pid in words[1:]])
    return said, process.returncode


def state(storage):
    with open(os.path.join(storage, "run", "checkpoint_manager_snapshot.json")) as file:
        return json.load(file)


@pytest.mark.parametrize(("how", "words", "code", "status"), [(signal.SIGINT, "interrupted", 3, "INTERRUPTED"),
                                                              (signal.SIGTERM, "ended with 143", 4, "INTERRUPTED"),
                                                              (signal.SIGKILL, "", -9, "RUNNING")])
def test_a_driver_that_is_ended_and_its_run_restored(tmp_path, how, words, code, status):
    storage = str(tmp_path / "runs")
    said, returned = ended_by(tmp_path, how, storage)
    assert words in said and returned == code
    noted = state(storage)
    assert noted["status"] == status and [c["name"] for c in noted["checkpoints"]] == ["checkpoint_000000", "checkpoint_000001"]
    path = os.path.join(storage, "run")
    back = Result.from_path(path)
    assert back.metrics["i"] == 1 and back.checkpoint.path.endswith("checkpoint_000001")

    def rest(config):
        begun = start()
        for i in range(begun, 4):
            save(i)
        return begun

    assert DataParallelTrainer.can_restore(path) and not DataParallelTrainer.can_restore(storage)
    result = restore(path, rest)
    assert result.path == back.path and result.return_value == 2
    assert list(result.metrics_dataframe["i"]) == [0, 1, 2, 3] and result.metrics["training_iteration"] == 4
    assert [os.path.basename(c.path) for c, _ in result.best_checkpoints] == [f"checkpoint_{n:06d}" for n in range(4)]
    assert state(storage)["status"] == "FINISHED"
    assert restore(path, rest).metrics["i"] == 3           # has come to its end: nothing is trained again


def restore(path, loop):
    return DataParallelTrainer.restore(path, train_loop_per_worker=loop, run_config=RunConfig()).fit()


def test_a_killed_driver_and_an_object_store(tmp_path):
    pytest.importorskip("moto")
    with s3.service():
        said, returned = ended_by(tmp_path, signal.SIGKILL, "s3://shelf/killed-driver")
        assert returned == -9
        back = Result.from_path("s3://shelf/killed-driver/run")
        assert [c.path.rpartition("/")[2] for c, _ in back.best_checkpoints] == ["checkpoint_000000", "checkpoint_000001"]
        rest = """
            def loop(config):
                begin = start()
                for i in range(begin, 3):
                    save(i)
                return begin

            raygo.init(num_cpus=2, log_to_driver=False)
            trainer = DataParallelTrainer.restore("s3://shelf/killed-driver/run", train_loop_per_worker=loop, run_config=RunConfig())
            result = trainer.fit()
            print(result.return_value, result.metrics["i"], list(result.metrics_dataframe["i"]), result.path, flush=True)
        """
        process = driver(tmp_path, rest, "")
        said, _ = process.communicate(timeout=120)
        assert said.startswith("2 2 [0, 1, 2] shelf/killed-driver/run/DataParallelTrainer_")
        names = s3.keys("killed-driver/run/")
        assert sum(name.endswith("/i") for name in names) == 3 and not [name for name in names if ".uploading" in name]


def test_a_checkpoint_on_its_way_when_another_rank_fails_is_waited_for(tmp_path):
    def loop(config):
        def slowly(checkpoint, name):
            time.sleep(0.7)
            return Checkpoint(shutil.copytree(checkpoint.path, os.path.join(config["place"], name)))

        begun, rank = start(), train.get_context().get_world_rank()
        for i in range(begun, 3):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "i"), "w") as file:
                    file.write(str(i))
                train.report({"i": i}, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None, checkpoint_dir_name=f"at-{i}",
                             checkpoint_upload_fn=slowly if rank == 0 else None)
        if rank == 1 and begun == 0:
            raise RuntimeError("ahead of the other")
        return begun

    with pytest.warns(UserWarning, match="ahead of the other"):
        result = fit(loop, tmp_path, config={"place": str(tmp_path / "place")}, failure_config=FailureConfig(max_failures=1))
    assert result.return_value == 3 and list(result.metrics_dataframe["i"]) == [0, 1, 2]


def test_a_worker_killed_while_it_uploads(tmp_path):
    """No half of a checkpoint is to be seen; the run goes on from the one before."""
    def loop(config):
        def kill_at_the_first_file(folder):
            while not os.path.isdir(folder) or not os.listdir(folder):
                pass
            os.kill(os.getpid(), signal.SIGKILL)

        if (begun := start()) == 0:
            rank = train.get_context().get_world_rank()
            save(0)
            with tempfile.TemporaryDirectory() as folder:
                for i in range(5000):
                    with open(os.path.join(folder, f"{rank}-{i}"), "w"):
                        pass
                if rank == 1:
                    incoming = os.path.join(train.get_context().get_storage().trial_fs_path, ".incoming", "000001", "1")
                    threading.Thread(target=kill_at_the_first_file, args=(incoming,), daemon=True).start()
                train.report({"i": 1}, checkpoint=Checkpoint.from_directory(folder))
            time.sleep(600)
        save(1)
        return begun

    with pytest.warns(UserWarning, match=r"rank 1 .* died: .*SIGKILL.* Starting again from .*checkpoint_000000"):
        result = fit(loop, tmp_path, failure_config=FailureConfig(max_failures=1))
    assert result.return_value == 1 and list(result.metrics_dataframe["i"]) == [0, 1]
    assert sorted(n for n in os.listdir(result.path) if n.startswith(("check", "."))) == ["checkpoint_000000", "checkpoint_000001"]
    with result.checkpoint.as_directory() as folder:
        assert os.listdir(folder) == ["i"]


def kill_the_first_worker():
    """As soon as there is one, which is before it is part of a group."""
    while True:
        for actor in list_actors(filters=[("class_name", "=", "TrainWorker"), ("state", "!=", "DEAD")], limit=1000):
            if actor.pid:
                os.kill(actor.pid, signal.SIGKILL)
                return


def test_a_worker_that_dies_while_the_group_starts_is_a_failure_like_others(tmp_path):
    def loop(config):
        time.sleep(0.5)
        save(0)

    killer = threading.Thread(target=kill_the_first_worker, daemon=True)
    killer.start()
    with pytest.warns(UserWarning, match=r"killed by signal 9 .*Starting again from the beginning \(failure 1 of 1\)"):
        result = fit(loop, tmp_path, failure_config=FailureConfig(max_failures=1))
    killer.join(60)
    assert list(result.metrics_dataframe["i"]) == [0]
    killer = threading.Thread(target=kill_the_first_worker, daemon=True)
    killer.start()
    with pytest.raises(TrainingFailedError, match="killed by signal 9"):
        fit(loop, tmp_path, name="second")
    killer.join(60)


def test_an_upload_that_fails_on_one_rank_makes_no_checkpoint(tmp_path):
    def loop(config):
        begin = start()
        if begin == 1:
            return begin
        save(0)
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(os.path.join(folder, "pipe")) if train.get_context().get_world_rank() == 1 else None
            train.report({"i": 1}, checkpoint=Checkpoint.from_directory(folder))
        time.sleep(600)

    with pytest.warns(UserWarning, match=r"rank 1 .* StorageError: .*local.*pipe.* Starting again from .*checkpoint_000000"):
        assert fit(loop, tmp_path, failure_config=FailureConfig(max_failures=1)).return_value == 1


def test_what_was_reported_just_before_a_death_counts(tmp_path):
    def loop(config):
        begin = start()
        with open(f"{config['log']}.{train.get_context().get_world_rank()}", "a") as file:
            file.write(f"{begin} ")
        for i in range(begin, 4):
            rank = train.get_context().get_world_rank()
            if rank == 0:
                save(i)
            else:
                train.report({"i": i})
            if i == 2 and rank == 0 and begin == 0:
                os._exit(5)

    with pytest.warns(UserWarning, match="rank 0 .* died: .*exited with code 5"):
        result = fit(loop, tmp_path, config={"log": str(tmp_path / "log")}, failure_config=FailureConfig(max_failures=1))
    assert result.metrics["i"] == 3 and (tmp_path / "log.0").read_text() == "0 3 "


def test_the_same_name_goes_on_and_another_begins(tmp_path):
    def loop(config):
        begin = start()
        for i in range(begin, 4):
            if i == 2 and config["fails"]:
                raise RuntimeError("enough")
            save(i)
        return begin

    with pytest.raises(WorkerGroupError, match="enough") as caught:
        fit(loop, tmp_path, config={"fails": True})
    assert isinstance(caught.value, TrainingFailedError) and set(caught.value.worker_failures) <= {0, 1}
    assert fit(loop, tmp_path, config={"fails": False}).return_value == 2
    assert fit(loop, tmp_path, config={"fails": False}, name="other").return_value == 0


def test_two_drivers_do_not_train_one_run(tmp_path):
    storage = str(tmp_path / "runs")
    process = driver(tmp_path, ENDLESS, storage)
    try:
        assert process.stdout.readline().startswith("two")
        with pytest.raises(ValueError, match=rf"runs/run is under way at this moment, by process {process.pid} on "):
            fit(start, tmp_path, storage_path=storage)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_report_that_was_written_but_not_noted_yet_counts_once(tmp_path):
    def loop(config):
        begin = start()
        for i in range(begin, config["upto"]):
            save(i)
        return begin

    fit(loop, tmp_path, config={"upto": 2})
    noted = state(str(tmp_path))
    noted.update(checkpoints=noted["checkpoints"][:1], made=1, status="RUNNING")
    with open(tmp_path / "run" / "checkpoint_manager_snapshot.json", "w") as file:
        json.dump(noted, file)
    again = fit(loop, tmp_path, config={"upto": 3})
    assert again.return_value == 2 and list(again.metrics_dataframe["i"]) == [0, 1, 2]
    assert [m["i"] for _, m in again.best_checkpoints] == [0, 1, 2]


def test_a_checkpoint_that_was_not_noted_yet_is_found(tmp_path):
    def loop(config):
        begin = start()
        for i in range(begin, config["upto"]):
            save(i)
        return begin

    result = fit(loop, tmp_path, config={"upto": 2})
    # As if the driver was killed between storing the second checkpoint and noting it.
    with open(os.path.join(result.path, "result.json")) as file:
        lines = file.readlines()
    with open(os.path.join(result.path, "result.json"), "w") as file:
        file.write(lines[0] + lines[1][:20])
    noted = state(str(tmp_path))
    noted.update(checkpoints=noted["checkpoints"][:1], made=1, status="RUNNING")
    with open(tmp_path / "run" / "checkpoint_manager_snapshot.json", "w") as file:
        json.dump(noted, file)
    again = fit(loop, tmp_path, config={"upto": 4})
    assert again.return_value == 2 and again.metrics["training_iteration"] == 4
    assert [os.path.basename(c.path) for c, _ in again.best_checkpoints] == [f"checkpoint_{n:06d}" for n in range(4)]
    assert [m.get("i") for _, m in Result.from_path(again.path).best_checkpoints] == [0, None, 2, 3]


def test_fewer_workers_when_resources_have_gone_and_more_again(tmp_path):
    @raygo.remote(num_cpus=2)
    class Holder:
        def ready(self):
            return True

    def loop(config):
        size = train.get_context().get_world_size()
        begin = start()
        with open(config["log"], "a") as file:
            file.write(f"{size}/{begin} " if train.get_context().get_world_rank() == 0 else "")
        if train.get_context().get_world_rank() == 0:
            save(begin)
        else:
            train.report({})
        if begin < 2:
            raise RuntimeError(f"failure {begin}")

    held = []

    class Hold(train.UserCallback):
        def after_exception(self, run_context, worker_exceptions):
            if not held:
                held.append(Holder.remote())
                held[0].ready.remote()
            else:
                raygo.kill(held[0])

    log = tmp_path / "log"
    with pytest.warns(UserWarning, match=r"RuntimeError: failure \d"):
        result = DataParallelTrainer(loop, train_loop_config={"log": str(log)}, scaling_config=ScalingConfig(num_workers=(1, 4)),
                                     run_config=RunConfig(storage_path=str(tmp_path), failure_config=FailureConfig(max_failures=2),
                                                          callbacks=[Hold()])).fit()
    assert result.metrics["i"] == 2
    assert log.read_text().split() == ["4/0", "2/1", "4/2"]


def test_restore_asks_for_what_it_needs(tmp_path):
    with pytest.raises(ValueError, match=r"trainer\.pkl"):
        DataParallelTrainer.restore(str(tmp_path))
    fit(lambda: None, tmp_path)

    class Other(DataParallelTrainer):
        pass

    with pytest.raises(ValueError, match="Invalid trainer type"):
        Other.restore(str(tmp_path / "run"))


def test_a_run_that_keeps_all_does_not_note_them_all_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr("raygo.train._kept._NOTED", 2)

    def loop(config):
        for i in range(start(), config["upto"]):
            save(i)

    fit(loop, tmp_path, workers=1, config={"upto": 6})
    assert [c["name"] for c in state(tmp_path)["checkpoints"]] == ["checkpoint_000004", "checkpoint_000005"]
    result = fit(loop, tmp_path, workers=1, config={"upto": 7})
    assert [(os.path.basename(c.path), m["i"]) for c, m in result.best_checkpoints] == [(f"checkpoint_00000{i}", i) for i in range(7)]


def test_a_storage_that_cannot_be_written_says_what_to_change(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be stored with storage_path='.*file'.*Not a directory.*Give RunConfig a storage_path"):
        fit(lambda: None, tmp_path, storage_path=str(tmp_path / "file"))
