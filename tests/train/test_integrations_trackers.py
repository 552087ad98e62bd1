"""Services that keep track of runs: MLflow, Weights & Biases, Comet, Aim; and what happens when they fail."""
import glob
import logging
import pickle
import sys
import threading

import pytest

import raygo.train
from raygo.train import DataParallelTrainer, RunConfig, ScalingConfig

# MLflow uses what SQLAlchemy deprecates.
pytestmark = [pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Trial:
    """What loggers need of a trial."""

    def __init__(self, folder, trial_id="abc_00000", **config):
        self.trial_id = trial_id
        self.config = config
        self.local_path = self.local_experiment_path = str(folder)
        self.experiment_dir_name = "the-experiment"
        self.checkpoint = None

    def __str__(self):
        return f"trial_{self.trial_id}"


def run(callback, folder, results, failed=False, **config):
    trial = Trial(folder, **config)
    callback.setup()
    callback.log_trial_start(trial)
    for i, result in enumerate(results, 1):
        callback.log_trial_result(i, trial, {"training_iteration": i, "config": config, **result})
    callback.log_trial_end(trial, failed)
    callback.on_experiment_end([trial])


def train(tmp_path, loop, callbacks, workers=2):
    return DataParallelTrainer(loop, train_loop_config={"lr": 0.1}, scaling_config=ScalingConfig(num_workers=workers),
                               run_config=RunConfig(name="tracked", storage_path=str(tmp_path / "runs"), callbacks=callbacks)).fit()


def test_mlflow_has_a_run_with_steps_parameters_and_files(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    from raygo.air.integrations.mlflow import MLflowLoggerCallback

    uri = f"sqlite:///{tmp_path}/m.db"
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "params.json").write_text("{}")
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    client.create_experiment("e", artifact_location=f"file://{tmp_path}/artifacts")
    callback = MLflowLoggerCallback(uri, experiment_name="e", tags={"team": "t"}, save_artifact=True)
    results = [{"loss": 1.0, "nested": {"a": i}, "text": "x", "nan": float("nan")} for i in (1, 2)]
    run(callback, tmp_path / "trial", results, failed=True, lr=0.5, net={"depth": 3}, **{f"p{i}": i for i in range(150)})
    (found,) = client.search_runs([client.get_experiment_by_name("e").experiment_id])
    assert found.info.status == "FAILED" and found.data.tags["team"] == "t" and found.data.tags["trial_name"] == "trial_abc_00000"
    assert found.data.params["lr"] == "0.5" and found.data.params["net/depth"] == "3" and found.data.params["p149"] == "149"
    assert [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, "nested/a")] == [(1, 1), (2, 2)]
    assert "text" not in found.data.metrics and "nan" not in found.data.metrics
    assert [a.path for a in client.list_artifacts(found.info.run_id)] == ["params.json"]
    again = pickle.loads(pickle.dumps(callback))
    again.set_state(callback.get_state())
    run(again, tmp_path / "trial", results)
    assert len(client.search_runs([found.info.experiment_id])) == 1      # the trial went on


def test_a_training_run_is_tracked_and_survives_a_tracker_that_is_away(tmp_path, caplog):
    mlflow = pytest.importorskip("mlflow")
    from raygo.air.integrations.mlflow import MLflowLoggerCallback

    def loop(config):
        for i in range(3):
            raygo.train.report({"loss": 1 / (i + 1)})

    uri = f"sqlite:///{tmp_path}/m.db"
    (tmp_path / "a-file").write_text("")
    broken = MLflowLoggerCallback(f"sqlite:///{tmp_path}/a-file/m.db", experiment_name="e")
    with caplog.at_level(logging.WARNING, logger="raygo.tune"):
        result = train(tmp_path, loop, [MLflowLoggerCallback(uri, experiment_name="e"), broken])
    assert result.error is None and len(result.metrics_dataframe) == 3
    assert "MLflow failed; training goes on without it" in caplog.text
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("e").experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["train_loop_config/lr"] == "0.1"
    assert [m.step for m in client.get_metric_history(found.info.run_id, "loss")] == [1, 2, 3]
    assert not [t for t in threading.enumerate() if t.name == "raygo-MLflow"]


def test_setup_mlflow_logs_on_rank_zero_only(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("RAYGO_TRAIN_REPORT_PATIENCE_S", "300")      # rank 0 has much more to do than the others
    uri = f"sqlite:///{tmp_path}/m.db"
    client = mlflow.tracking.MlflowClient(tracking_uri=uri)
    client.search_experiments()      # makes the tables

    def loop(config):
        from raygo.air.integrations.mlflow import setup_mlflow

        if raygo.train.get_context().get_world_rank() == 0:
            with pytest.raises(ValueError, match="no experiment 'absent'"):
                setup_mlflow(tracking_uri=uri, experiment_name="absent")
        ml = setup_mlflow(config, tracking_uri=uri, create_experiment_if_not_exists=True, tags={"k": "v"})
        ml.log_metric("rank", raygo.train.get_context().get_world_rank())
        raygo.train.report({"done": 1})

    train(tmp_path, loop, [])
    (found,) = client.search_runs([client.get_experiment_by_name("tracked").experiment_id])
    assert found.data.metrics == {"rank": 0} and found.data.params == {"lr": "0.1"} and found.data.tags["k"] == "v" and found.data.tags["trial_id"]


def test_wandb_writes_a_run_for_each_trial_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from raygo.air.integrations.wandb import WandbLoggerCallback

    monkeypatch.setenv("WANDB_MODE", "offline")
    callback = WandbLoggerCallback("p", excludes=["secret"])
    callback.setup()
    trials = []
    for i in range(2):
        (tmp_path / str(i)).mkdir()
        trials.append(Trial(tmp_path / str(i), f"t{i}", lr=i, secret="x", kind=object))
        callback.log_trial_start(trials[-1])
    for step in range(3):
        for trial in trials:
            callback.log_trial_result(step, trial, {"loss": 1.0 - step, "secret": 1, "date": "today", "done": False})
    pickle.dumps(callback)
    for trial in trials:
        callback.log_trial_end(trial)
    callback.on_experiment_end(trials)
    for i in range(2):
        (file,) = glob.glob(str(tmp_path / str(i) / "wandb" / "offline-run-*" / f"run-t{i}.wandb"))
        with open(file, "rb") as stream:
            data = stream.read()
        assert data.count(b"loss") >= 3 and b"secret" not in data and b"today" in data


def test_wandb_says_what_is_missing(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from raygo.air.integrations.wandb import WandbLoggerCallback

    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ValueError, match="No WandB API key found"):
        WandbLoggerCallback("p").setup()
    with pytest.raises(ValueError, match="Both"):
        WandbLoggerCallback("p", api_key="a", api_key_file="b").setup()
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ValueError, match="project name"):
        WandbLoggerCallback().setup()


def test_a_wandb_run_that_fails_disturbs_nothing(tmp_path, monkeypatch, caplog):
    pytest.importorskip("wandb")
    from raygo.air.integrations.wandb import WandbLoggerCallback

    monkeypatch.setenv("WANDB_MODE", "offline")
    with caplog.at_level(logging.WARNING, logger="raygo.tune"):
        run(WandbLoggerCallback("p", mode="no such mode"), tmp_path, [{"loss": 1.0}])
    assert "a run of Weights & Biases failed; training goes on without it" in caplog.text


HANGS = """
import threading

class Run:
    config = {}

    def log_artifact(self, artifact):
        threading.Event().wait()

    log = finish = log_artifact

class Artifact:
    def __init__(self, **about):
        pass

    def add_dir(self, folder):
        pass

def init(**settings):
    run = Run()
    run.config = type("Config", (), {"update": lambda *a, **k: None})()
    return run
"""


def test_a_wandb_that_hangs_holds_nothing_up(tmp_path, monkeypatch, caplog):
    """The package is one that never answers."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "wandb.py").write_text(HANGS)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    from raygo.air.integrations import wandb

    monkeypatch.setattr(wandb, "_SAVE_S", 1.0)
    monkeypatch.setattr(wandb, "_ON_THE_WAY", 3)
    callback = wandb.WandbLoggerCallback("p", upload_timeout=1, save_checkpoints=True)
    callback.setup()
    trial = Trial(tmp_path)
    trial.checkpoint = raygo.train.Checkpoint.from_directory(str(modules))
    with caplog.at_level(logging.WARNING, logger="raygo.tune"):
        callback.log_trial_start(trial)
        callback.log_trial_save(trial)
        callback.log_trial_save(trial)
        for i in range(5):
            callback.log_trial_result(i, trial, {"training_iteration": i})
        callback.log_trial_end(trial)
        callback.on_experiment_end([trial])
    said = ("has not taken a checkpoint within 1 s", "is too slow", "1 runs of Weights & Biases have not finished")
    assert [caplog.text.count(words) for words in said] == [1, 1, 1]


def test_a_wandb_run_that_is_dead_when_a_checkpoint_comes(tmp_path, monkeypatch, caplog):
    pytest.importorskip("wandb")
    from raygo.air.integrations.wandb import WandbLoggerCallback

    monkeypatch.setenv("WANDB_MODE", "offline")
    callback = WandbLoggerCallback("p", mode="no such mode", save_checkpoints=True)
    callback.setup()
    trial = Trial(tmp_path)
    trial.checkpoint = raygo.train.Checkpoint.from_directory(str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="raygo.tune"):
        callback.log_trial_start(trial)
        callback.log_trial_save(trial)
        callback.log_trial_end(trial, failed=True)
        callback.on_experiment_end([trial])
    assert "a run of Weights & Biases failed; training goes on without it" in caplog.text


def test_setup_wandb_in_workers(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("RAYGO_TRAIN_REPORT_PATIENCE_S", "300")

    def loop(config):
        from raygo.air.integrations.wandb import setup_wandb

        made = setup_wandb(config, project="p", mode="offline", dir=str(tmp_path))
        made.log({"loss": 1})
        made.finish()
        raygo.train.report({"disabled": made.disabled, "id": made.id, "trial": raygo.train.get_context().get_trial_id()})

    metrics = train(tmp_path, loop, []).metrics
    assert metrics["disabled"] is False and metrics["id"] == metrics["trial"]
    assert len(glob.glob(str(tmp_path / "wandb" / "offline-run-*"))) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")       # Comet leaves sockets open
def test_comet_writes_an_archive_offline(tmp_path):
    pytest.importorskip("comet_ml")
    from raygo.air.integrations.comet import CometLoggerCallback

    callback = CometLoggerCallback(online=False, offline_directory=str(tmp_path / "comet"), workspace="w", project_name="p", tags=["t"])
    run(callback, tmp_path, [{"loss": 1.0}, {"loss": 0.5}], lr=0.1)
    (archive,) = glob.glob(str(tmp_path / "comet" / "*.zip"))
    import zipfile

    messages = zipfile.ZipFile(archive).read("messages.json").decode()
    assert "training_iteration" in messages and '"loss"' in messages and "trial_abc_00000" in messages


def test_aim_takes_all_calls_of_a_run(tmp_path, caplog):
    aim = pytest.importorskip("aim")
    from raygo.tune.logger.aim import AimLoggerCallback

    with caplog.at_level(logging.WARNING, logger="raygo.tune"):
        run(AimLoggerCallback(repo=str(tmp_path), metrics=["loss"]), tmp_path, [{"loss": 1.0, "other": 1}, {"loss": 0.5}], lr=0.1)
    assert not caplog.records and len(aim.Repo(str(tmp_path)).list_all_runs()) == 1      # values are readable once Aim has indexed them


@pytest.mark.parametrize("package, module, name", [("comet_ml", "raygo.air.integrations.comet", "CometLoggerCallback"),
                                                   ("aim", "raygo.tune.logger.aim", "AimLoggerCallback")])
def test_a_package_that_is_absent_is_named(package, module, name):
    import importlib
    import importlib.util

    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(ImportError, match=f"needs the package {package}: pip install"):
        getattr(importlib.import_module(module), name)()
