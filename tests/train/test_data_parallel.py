"""Trainers without a framework: reports, checkpoints, failures, results."""
import csv
import json
import os
import subprocess
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
    ControllerError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    UserCallback,
)
from raygo.train.backend import Backend, BackendConfig
from raygo.tune import Callback


def fit(loop, tmp_path, workers=1, config=None, name="run", **run):
    return DataParallelTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
                               run_config=RunConfig(storage_path=str(tmp_path), name=name, **run)).fit()


def folder_with(name, text):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
    return Checkpoint.from_directory(folder)


def test_metrics_of_rank_zero_make_the_history(tmp_path):
    def loop(config):
        for i in range(config["n"]):
            train.report({"i": i, "rank": train.get_context().get_world_rank()})

    result = fit(loop, tmp_path, workers=2, config={"n": 3})
    assert result.error is None and result.checkpoint is None
    assert result.metrics["i"] == 2 and result.metrics["rank"] == 0 and result.metrics["training_iteration"] == 3
    assert list(result.metrics_dataframe["i"]) == [0, 1, 2]


def test_context_says_where_a_worker_is(tmp_path):
    def loop():
        c = train.get_context()
        mine = [c.get_world_rank(), c.get_world_size(), c.get_local_rank(), c.get_local_world_size(), c.get_node_rank(),
                os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"]]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, f"rank-{c.get_world_rank()}.json"), "w") as file:
                json.dump(mine, file)
            train.report({"name": c.get_experiment_name(), "storage": c.get_storage().storage_fs_path, "trial": c.get_trial_name(),
                          "meta": c.get_metadata()}, checkpoint=Checkpoint.from_directory(folder))

    result = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=3), metadata={"by": "test"},
                                 run_config=RunConfig(storage_path=str(tmp_path), name="where")).fit()
    assert result.metrics["name"] == "where" and result.metrics["storage"] == str(tmp_path) and result.metrics["meta"] == {"by": "test"}
    with result.checkpoint.as_directory() as folder:
        for rank in range(3):
            with open(os.path.join(folder, f"rank-{rank}.json")) as file:
                assert json.load(file) == [rank, 3, rank, 3, 0, str(rank), "3", str(rank)]


def test_layout_on_disk_and_back(tmp_path):
    def loop(config):
        for i in range(2):
            train.report({"i": i, "deep": {"x": i}}, checkpoint=folder_with("n.txt", str(i)))
        train.report({"i": 2})

    result = fit(loop, tmp_path, config={"lr": 0.1})
    assert result.path.startswith(str(tmp_path / "run") + os.sep)
    assert sorted(n for n in os.listdir(result.path) if not n.startswith((".", "events."))) == [
        "checkpoint_000000", "checkpoint_000001", "params.json", "params.pkl", "progress.csv", "result.json"]
    with open(os.path.join(result.path, "params.json")) as file:
        assert json.load(file) == {"train_loop_config": {"lr": 0.1}}
    with open(os.path.join(result.path, "progress.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["i"] for row in rows] == ["0", "1", "2"] and rows[1]["deep/x"] == "1"
    back = Result.from_path(result.path)
    assert back.config == result.config == {"train_loop_config": {"lr": 0.1}}
    assert back.metrics["i"] == 2 and back.checkpoint.path == result.checkpoint.path and len(back.best_checkpoints) == 2
    assert back.get_best_checkpoint("deep/x", "min").path.endswith("checkpoint_000000")
    with pytest.raises(RuntimeError, match="absent"):
        back.get_best_checkpoint("absent", "max")


def test_the_best_checkpoints_are_kept_and_the_newest(tmp_path):
    def loop():
        for score in (3.0, float("nan"), 9.0, 1.0, 7.0, 2.0):
            train.report({"score": score}, checkpoint=folder_with("score", str(score)))

    result = fit(loop, tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score"))
    assert [m["score"] for _, m in result.best_checkpoints] == [7.0, 9.0]        # and the newest is in `checkpoint`
    assert result.get_best_checkpoint("score", "min") == result.best_checkpoints[0][0] and result.checkpoint.path.endswith("5")
    back = Result.from_path(result.path)
    assert back.best_checkpoints == result.best_checkpoints and back.checkpoint == result.checkpoint
    assert sum(n.startswith("checkpoint_") for n in os.listdir(result.path)) == 3


def test_scores_that_are_no_python_numbers(tmp_path):
    def loop():
        import numpy

        for score in (3, 9, 1, 7):
            train.report({"score": numpy.float32(score)}, checkpoint=folder_with("score", str(score)))

    result = fit(loop, tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score", checkpoint_score_order="min"))
    assert [m["score"] for _, m in result.best_checkpoints] == [1]


def test_nan_is_never_the_best():
    scores = (float("nan"), 2.0, 3.0)
    result = Result({}, None, None, "/run", best_checkpoints=[(Checkpoint(f"/run/{score}"), {"score": score}) for score in scores])
    deep = Result({}, None, None, "/run", best_checkpoints=[(Checkpoint("/run/1"), {"a": {"b/c": 1}}), (Checkpoint("/run/2"), {"a/b": {"c": 2}})])
    assert deep.get_best_checkpoint("a/b/c", "max").path == "/run/2" and deep.get_best_checkpoint("a/b/c", "min").path == "/run/1"
    assert result.get_best_checkpoint("score", "max").path == "/run/3.0" and result.get_best_checkpoint("score", "min").path == "/run/2.0"


@pytest.mark.parametrize("keeps", ["here", "there"])
def test_a_function_may_return_what_cannot_be_sent(tmp_path, keeps):
    def loop():
        if train.get_context().get_world_rank() == 1:
            return threading.Lock()       # nobody's business
        if keeps == "here":
            return threading.Lock()
        class Odd:
            def __reduce__(self):
                return os.listdir, ("/no/such/folder",)
        return Odd()

    with pytest.warns(UserWarning, match="The training function returned .*, which cannot be sent" if keeps == "here" else "cannot be read in the driver"):
        assert fit(loop, tmp_path, workers=2).return_value is None


def test_files_of_all_ranks_come_into_one_checkpoint(tmp_path):
    def loop():
        rank = train.get_context().get_world_rank()
        for _ in range(2):
            both = folder_with("same.txt", str(rank))
            with open(os.path.join(both.path, f"own-{rank}.txt"), "w"):
                pass
            train.report({}, checkpoint=both)

    result = fit(loop, tmp_path, workers=2)
    assert len(result.best_checkpoints) == 2
    with result.checkpoint.as_directory() as folder:
        assert sorted(os.listdir(folder)) == ["own-0.txt", "own-1.txt", "same.txt"]
        with open(os.path.join(folder, "same.txt")) as file:
            assert file.read() == "0"


def test_a_checkpoint_after_reports_without(tmp_path):
    def loop():
        rank = train.get_context().get_world_rank()
        train.report({"step": 0})
        train.report({"step": 1}, checkpoint=folder_with("w", "1") if rank == 0 else None)
        train.report({"step": 2}, checkpoint=folder_with("w", "2"))

    result = fit(loop, tmp_path, workers=2)
    assert [os.path.basename(c.path) for c, _ in result.best_checkpoints] == ["checkpoint_000000", "checkpoint_000001"]


def test_only_one_rank_reports(tmp_path):
    def loop():
        if train.get_context().get_world_rank() == 0:
            for i in range(3):
                train.report({"i": i})

    assert fit(loop, tmp_path, workers=2).metrics["i"] == 2


def test_a_rank_that_does_not_report_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYGO_TRAIN_REPORT_PATIENCE_S", "0.3")

    def loop():
        if train.get_context().get_world_rank() == 0:
            train.report({"loss": 1.0})
        time.sleep(1.5)

    with pytest.warns(UserWarning, match=r"rank\(s\) 1 did not call report"):
        assert fit(loop, tmp_path, workers=2).metrics["loss"] == 1.0


def test_an_error_names_rank_and_cause(tmp_path):
    def loop():
        if train.get_context().get_world_rank() == 1:
            raise FileNotFoundError("no such shelf")
        time.sleep(30)

    begin = time.monotonic()
    with pytest.raises(TrainingFailedError, match="rank 1 .*FileNotFoundError: no such shelf") as caught:
        fit(loop, tmp_path, workers=2)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert time.monotonic() - begin < 15      # the other worker is ended, not waited for


def test_an_error_as_it_is(tmp_path):
    def loop():
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fit(loop, tmp_path, failure_config=FailureConfig(fail_fast="raise"))


def test_a_parameter_with_a_default_is_not_for_the_config(tmp_path):
    def loop(name="own"):
        return name

    assert fit(loop, tmp_path / "none").return_value == "own" and fit(loop, tmp_path / "given", config={"x": 1}).return_value == {"x": 1}


def test_a_dead_worker_is_named(tmp_path):
    def loop():
        if train.get_context().get_world_rank() == 1:
            os._exit(7)
        time.sleep(30)

    with pytest.raises(TrainingFailedError, match="rank 1 "):
        fit(loop, tmp_path, workers=2)


def test_an_error_without_a_text(tmp_path):
    def loop():
        raise KeyboardInterrupt

    with pytest.raises(TrainingFailedError, match=r"failed: KeyboardInterrupt\. The run"):
        fit(loop, tmp_path)


def test_a_failed_run_goes_on_from_its_checkpoint(tmp_path):
    def loop():
        start = train.get_checkpoint()
        step = 0
        if start is not None:
            with start.as_directory() as folder, open(os.path.join(folder, "step")) as file:
                step = int(file.read())
        for i in range(step, 4):
            train.report({"i": i}, checkpoint=folder_with("step", str(i + 1)))
            if i == 1 and start is None:
                raise RuntimeError("power cut")
        return "whole"

    with pytest.warns(UserWarning, match="power cut"):
        result = fit(loop, tmp_path, failure_config=FailureConfig(max_failures=1))
    assert result.metrics["i"] == 3 and list(result.metrics_dataframe["i"]) == [0, 1, 2, 3] and result.return_value == "whole"


def test_resume_from_a_checkpoint(tmp_path):
    def loop():
        with train.get_checkpoint().as_directory() as folder, open(os.path.join(folder, "w")) as file:
            train.report({"w": file.read()})

    result = DataParallelTrainer(loop, run_config=RunConfig(storage_path=str(tmp_path)), resume_from_checkpoint=folder_with("w", "old")).fit()
    assert result.metrics["w"] == "old"


@pytest.mark.parametrize(("scaling", "words"), [
    (ScalingConfig(num_workers=2, use_gpu=True), "2 GPU"),
    (ScalingConfig(num_workers=64), "64 CPU"),
    (ScalingConfig(num_workers=1, resources_per_worker={"gizmo": 1}), "1 gizmo"),
    (ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"), "room for 1 workers"),
])
def test_what_can_never_fit_fails_at_once(tmp_path, scaling, words):
    begin = time.monotonic()
    with pytest.raises(TrainingFailedError, match=words):
        DataParallelTrainer(lambda: None, scaling_config=scaling, run_config=RunConfig(storage_path=str(tmp_path))).fit()
    assert time.monotonic() - begin < 3


def test_resources_that_others_hold(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAIN_PLACEMENT_GROUP_TIMEOUT_S", "0.5")

    @raygo.remote(num_cpus=4)
    class Holder:
        def ready(self):
            return True

    holder = Holder.remote()
    raygo.get(holder.ready.remote())
    with pytest.raises(TrainingFailedError, match=r"could not be placed within 0.5 s"):
        fit(lambda: None, tmp_path)
    raygo.kill(holder)


def test_workers_and_their_resources_are_gone_afterwards(tmp_path):
    def loop():
        train.report({"pid": os.getpid(), "has": raygo.get_runtime_context().get_assigned_resources()})

    result = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2, "widget": 1}),
                                 run_config=RunConfig(storage_path=str(tmp_path))).fit()
    has = {key.split("_group")[0]: amount for key, amount in result.metrics["has"].items()}
    assert has["CPU"] == 2 and has["widget"] == 1
    deadline = time.monotonic() + 10
    while raygo.available_resources().get("CPU") != 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert raygo.available_resources()["CPU"] == 4
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{result.metrics['pid']}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{result.metrics['pid']}")


def test_callbacks_see_reports_and_failures(tmp_path):
    seen = []

    class Watch(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.append(([m["rank"] for m in metrics], checkpoint))

        def after_exception(self, run_context, worker_exceptions):
            seen.append(sorted(worker_exceptions))

    def loop():
        train.report({"rank": train.get_context().get_world_rank()})
        raise ValueError("enough")

    with pytest.raises(TrainingFailedError):
        fit(loop, tmp_path, workers=2, callbacks=[Watch()])
    assert ([0, 1], None) in seen and seen[-1] in ([0], [1], [0, 1])


@pytest.mark.parametrize("where", ["after_report", "on_trial_result", "stop"])
def test_a_callback_that_fails_ends_the_run_and_is_named(tmp_path, where):
    def fails(*args, **kwargs):
        raise LookupError("mine")

    kind = type("Watch", (Callback if where == "on_trial_result" else UserCallback,), {where: fails})
    settings = {"stop": fails} if where == "stop" else {"callbacks": [kind()]}
    with pytest.raises(ControllerError, match="Watch.after_report failed: LookupError: mine" if where == "after_report" else "LookupError: mine") as info:
        fit(lambda: train.report({}), tmp_path, **settings)
    assert isinstance(info.value.__cause__, LookupError)


def test_outside_of_training_one_is_alone(recwarn):
    assert train.get_context().get_world_size() == 1 and train.get_context().get_world_rank() == 0
    assert train.get_checkpoint() is None
    train.report({"x": 1})


def test_workers_that_die_once_training_is_over_take_nothing_away(tmp_path):
    class Ends(Backend):
        def on_shutdown(self, worker_group, backend_config):
            worker_group.execute(os._exit, 1)

    class EndsConfig(BackendConfig):
        @property
        def backend_cls(self):
            return Ends

    result = DataParallelTrainer(lambda: train.report({"loss": 1.0}), backend_config=EndsConfig(),
                                 run_config=RunConfig(storage_path=str(tmp_path), name="run")).fit()
    assert result.metrics["loss"] == 1.0


LIGHT = """
import sys
import raygo
from raygo import train
from raygo.train import RunConfig, ScalingConfig, DataParallelTrainer

raygo.init(num_cpus=1, log_to_driver=False)
result = DataParallelTrainer(lambda: train.report({"n": 1}), run_config=RunConfig(storage_path=sys.argv[1], name="run", verbose=0)).fit()
print(sorted({"numpy", "pandas", "pyarrow", "torch"} & set(sys.modules)))
print(list(result.metrics_dataframe["n"]), list(train.Result.from_path(result.path).metrics_dataframe["n"]))
"""


def test_a_run_imports_no_more_than_it_needs(tmp_path):
    done = subprocess.run([sys.executable, "-c", LIGHT, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[]", "[1] [1]"], done.stderr
