"""Searches from end to end."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import raygo
from raygo import tune
from raygo.tune import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner
from raygo.tune.schedulers import FIFOScheduler
from raygo.tune.search import ConcurrencyLimiter, Searcher
from raygo.tune.trainable import wrap_function


def run(folder: Path, **more) -> RunConfig:
    return RunConfig(storage_path=str(folder), verbose=0, **more)


def steps(config):
    for i in range(3):
        tune.report({"score": config["x"] * (i + 1)})


def test_results_are_those_of_the_configs(tmp_path):
    grid = Tuner(steps, param_space={"x": tune.grid_search([1, 3, 2])}, tune_config=TuneConfig(metric="score", mode="max"), run_config=run(tmp_path)).fit()
    assert [r.metrics["score"] for r in grid] == [3, 9, 6] and grid.get_best_result().config == {"x": 3}
    assert grid.get_best_result(mode="min", scope="all").config == {"x": 1} and grid.get_best_result(scope="avg").config == {"x": 3}
    assert list(grid[1].metrics_dataframe["score"]) == [3, 6, 9] and grid.num_terminated == 3


def test_nan_is_never_best_and_no_report_is_a_clear_error(tmp_path):
    def trial(config):
        if config["x"]:
            return {"loss": config["x"]}

    grid = Tuner(trial, param_space={"x": tune.grid_search([float("nan"), 2.0, 1.0])}, tune_config=TuneConfig(metric="loss", mode="min"),
                 run_config=run(tmp_path)).fit()
    assert grid.get_best_result().metrics["loss"] == 1.0
    assert grid.get_best_result(filter_nan_and_inf=False, mode="max").metrics["loss"] == 2.0
    none = Tuner(lambda config: None, param_space={"x": tune.grid_search([1, 2])}, run_config=run(tmp_path)).fit()
    assert none.num_errors == 0
    with pytest.raises(RuntimeError, match="No best trial found for the given metric: loss"):
        none.get_best_result("loss", "min")


def test_a_folder_holds_one_search(tmp_path):
    Tuner(steps, param_space={"x": 1}, run_config=run(tmp_path, name="one")).fit()
    with pytest.raises(tune.TuneError, match="has a search already"):
        Tuner(steps, param_space={"x": 2}, run_config=run(tmp_path, name="one")).fit()
    assert Tuner.restore(str(tmp_path / "one"), trainable=steps).get_results()[0].config == {"x": 1}
    with pytest.raises(ValueError, match="not of 'other'"):
        Tuner.restore(str(tmp_path / "one"), trainable="other")


def test_two_drivers_do_not_run_one_search(tmp_path):
    def asks(config):
        code = "import sys, raygo\nfrom raygo import tune\ndef asks(config): pass\nraygo.init(num_cpus=1)\n" \
               "tune.Tuner.restore(sys.argv[1], trainable=asks).fit()"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "one")], capture_output=True, text=True, timeout=100)
        return {"code": done.returncode, "said": done.stderr}

    metrics = Tuner(asks, run_config=run(tmp_path, name="one")).fit()[0].metrics
    assert metrics["code"] == 1 and f"one is under way at this moment, by process {os.getpid()} on " in metrics["said"]


def test_reused_processes_close_the_logs_of_trials_before(tmp_path):
    def prints(config):
        print("I am", config["i"])
        return {"open": sum(os.path.realpath(f"/proc/self/fd/{fd}").endswith("/stdout") for fd in os.listdir("/proc/self/fd"))}

    grid = Tuner(prints, param_space={"i": tune.grid_search([0, 1, 2])}, tune_config=TuneConfig(reuse_actors=True, max_concurrent_trials=1),
                 run_config=run(tmp_path, log_to_file=True)).fit()
    assert len({r.metrics["pid"] for r in grid}) == 1 and [r.metrics["open"] for r in grid] == [1, 1, 1]
    assert [Path(r.path, "stdout").read_text() for r in grid] == [f"I am {i}\n" for i in range(3)]


def test_a_moved_search_is_found(tmp_path):
    def saves(config):
        checkpoint, start = tune.get_checkpoint(), 0
        if checkpoint:
            with checkpoint.as_directory() as folder:
                start = int(Path(folder, "n").read_text()) + 1
        for n in range(start, 3):
            if n == 2 and not os.path.exists(config["flag"]):
                raise RuntimeError("not yet")
            here = Path(config["tmp"], f"{config['i']}-{n}")
            here.mkdir(exist_ok=True)
            (here / "n").write_text(str(n))
            tune.report({"n": n, "start": start}, checkpoint=Checkpoint.from_directory(here))

    flag = tmp_path / "flag"
    (tmp_path / "c").mkdir()
    space = {"i": tune.grid_search([0, 1]), "flag": str(flag), "tmp": str(tmp_path / "c")}
    first = Tuner(saves, param_space=space, run_config=run(tmp_path / "a", name="e")).fit()
    assert first.num_errors == 2
    (tmp_path / "b").mkdir()
    os.rename(tmp_path / "a" / "e", tmp_path / "b" / "moved")
    flag.touch()
    again = Tuner.restore(str(tmp_path / "b" / "moved"), trainable=saves, resume_errored=True).fit()
    assert again.num_errors == 0 and [r.metrics["start"] for r in again] == [2, 2]
    assert all(r.checkpoint.path.startswith(str(tmp_path / "b" / "moved")) for r in again)


class Counter(tune.Trainable):
    def setup(self, config, step=1):
        self.value, self.by = 0, step

    def step(self):
        self.value += self.by
        return {"value": self.value}

    def save_checkpoint(self, folder):
        return {"value": self.value}

    def load_checkpoint(self, saved):
        self.value = saved["value"]

    def reset_config(self, config):
        self.value = 0
        return True


def test_classes_are_saved_reused_and_given_parameters(tmp_path):
    grid = Tuner(tune.with_parameters(Counter, step=5), param_space={"i": tune.grid_search([0, 1, 2])},
                 tune_config=TuneConfig(reuse_actors=True, max_concurrent_trials=1),
                 run_config=run(tmp_path, stop={"training_iteration": 4},
                                checkpoint_config=CheckpointConfig(checkpoint_frequency=3, checkpoint_at_end=True))).fit()
    assert [r.metrics["value"] for r in grid] == [20] * 3 and len({r.metrics["pid"] for r in grid}) == 1
    assert [[c.path[-6:] for c, _ in r.best_checkpoints] for r in grid] == [["000000", "000001"]] * 3
    assert Tuner.restore(grid.experiment_path, trainable=Counter).get_results()[2].metrics["value"] == 20


def test_processes_that_are_reused_hold_nobody_up(tmp_path):
    grid = Tuner(steps, param_space={"x": tune.grid_search(list(range(20)))}, tune_config=TuneConfig(reuse_actors=True), run_config=run(tmp_path)).fit()
    assert [r.metrics["score"] for r in grid] == [3 * x for x in range(20)] and len({r.metrics["pid"] for r in grid}) < 20


def test_a_class_outside_of_a_search_saves_and_restores():
    first = Counter({})
    first.train()
    first.train()
    second = Counter({})
    second.restore(first.save())
    assert second.train() and (second.value, second.iteration) == (3, 3)


def test_trials_are_tried_again_from_their_checkpoints(tmp_path):
    def dies(config):
        checkpoint = tune.get_checkpoint()
        tune.report({"had": bool(checkpoint)}, checkpoint=Checkpoint.from_directory(tmp_path / "c"))
        if not checkpoint:
            os._exit(3)

    (tmp_path / "c").mkdir()
    grid = Tuner(dies, run_config=run(tmp_path, failure_config=FailureConfig(max_failures=1))).fit()
    assert grid.num_errors == 0 and grid[0].metrics["had"]
    grid = Tuner(dies, run_config=run(tmp_path)).fit()
    assert grid.num_errors == 1 and "exited with code 3" in str(grid.errors[0])


def test_fail_fast_raises_what_the_trial_raised(tmp_path):
    def bad(config):
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        Tuner(bad, run_config=run(tmp_path, failure_config=FailureConfig(fail_fast="raise"))).fit()


def test_a_stopped_function_cleans_up(tmp_path):
    def tidy(config):
        try:
            while True:
                tune.report({"n": 1})
        finally:
            (tmp_path / "clean").touch()

    grid = Tuner(tidy, run_config=run(tmp_path, stop={"training_iteration": 2})).fit()
    assert grid[0].metrics["training_iteration"] == 2 and (tmp_path / "clean").exists()


def test_a_function_that_says_it_is_done_cleans_up(tmp_path):
    def says(config):
        try:
            tune.report({"n": 1, "done": True})
            tune.report({"n": 2})
        finally:
            (tmp_path / "clean").touch()

    assert Tuner(says, run_config=run(tmp_path)).fit()[0].metrics["n"] == 1 and (tmp_path / "clean").exists()


def test_what_is_wrong_with_a_metric_is_said(tmp_path, caplog):
    grid = Tuner(steps, param_space={"x": 1}, tune_config=TuneConfig(scheduler=tune.schedulers.ASHAScheduler(metric="acc", mode="max")),
                 run_config=run(tmp_path)).fit()
    assert grid.num_errors == 1 and "`acc`" in str(grid.errors[0]) and "score" in str(grid.errors[0])
    # A metric may come with some of the reports only.
    for searches in (1, 2):
        grid = Tuner(steps, param_space={"x": tune.grid_search([1, 1])}, run_config=run(tmp_path, stop={"nowhere": 3})).fit()
        assert not grid.errors and grid[0].metrics["score"] == 3
        assert caplog.text.count("Stopping criterion 'nowhere' not found in result dict!") == searches
    grid = Tuner(lambda config: {"loss": 1}, tune_config=TuneConfig(metric="acc", mode="max"), run_config=run(tmp_path)).fit()
    assert "`acc`" in str(grid.errors[0])


def test_a_failing_logger_does_not_fail_trials(tmp_path, caplog):
    class Broken(tune.logger.LoggerCallback):
        def log_trial_result(self, iteration, trial, result):
            raise OSError("the tracker is down")

    broken = Broken()
    grid = Tuner(steps, param_space={"x": 1}, run_config=run(tmp_path, callbacks=[broken])).fit()
    assert grid.num_errors == 0 and broken.failures == 3 and caplog.text.count("OSError: the tracker is down") == 1


def test_trials_may_use_the_cluster(tmp_path):
    @raygo.remote
    def double(x):
        return 2 * x

    def uses(config):
        tune.report({"sum": sum(raygo.get([double.remote(i) for i in range(4)]))})

    grid = Tuner(uses, param_space={"i": tune.grid_search(list(range(6)))}, run_config=run(tmp_path)).fit()
    assert [r.metrics["sum"] for r in grid] == [12] * 6


def test_bundles_are_reserved_for_a_trial(tmp_path):
    def where(config):
        tune.report({"bundles": tune.get_context().get_trial_resources().bundles, "group": raygo.get_runtime_context().get_placement_group_id() is not None})

    factory = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    grid = Tuner(tune.with_resources(where, factory), run_config=run(tmp_path)).fit()
    assert grid[0].metrics["bundles"] == [{"CPU": 1.0}, {"CPU": 1.0}] and grid[0].metrics["group"]


def test_run_does_what_the_tuner_does(tmp_path):
    analysis = tune.run(steps, config={"x": tune.grid_search([1, 2])}, metric="score", mode="max", storage_path=str(tmp_path), name="r", verbose=0)
    assert analysis.best_config == {"x": 2} and analysis.best_result["score"] == 6 and set(analysis.results_df["score"]) == {3, 6}
    with pytest.raises(tune.TuneError, match="did not complete"):
        tune.run(lambda config: 1 / 0, storage_path=str(tmp_path), verbose=0)
    lines = [json.loads(line) for line in Path(analysis.best_trial.local_path, "result.json").read_text().splitlines()]
    assert [line["score"] for line in lines] == [2, 4, 6]
    ids = {trial.trial_id for trial in analysis.trials}
    assert set(analysis.trial_dataframes) == ids and analysis.get_all_configs(prefix=True).keys() == ids
    assert [*analysis.get_all_configs(prefix=True).values()] == [{"config/x": 1}, {"config/x": 2}]
    assert sorted(analysis.dataframe("score", "min")["score"]) == [1, 2] and sorted(analysis.dataframe()["score"]) == [3, 6]
    with pytest.raises(ValueError, match="needs a `metric` too"):
        analysis.dataframe(mode="max")


class Exports(Counter):
    def _export_model(self, formats, folder):
        Path(folder, "model.txt").write_text(str(self.value))
        return {formats[0]: "model.txt"}


def test_models_are_exported_at_the_end(tmp_path):
    more = {"stop": {"training_iteration": 2}, "storage_path": str(tmp_path), "verbose": 0}
    (trial,) = tune.run(Exports, name="e", export_formats=["model"], **more).trials
    assert Path(trial.local_path, "model.txt").read_text() == "2"
    with pytest.raises(tune.TuneError, match="Unsupported import/export format: nonsense"):
        tune.run(Exports, name="f", export_formats=["nonsense"], **more)


class Asks(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        result["own"] = result.pop("config")          # a callback may do with it what it likes
        if result["value"] in (2, 4):
            trial.checkpoint_now()


def test_a_callback_asks_for_checkpoints(tmp_path):
    result = Tuner(Counter, run_config=run(tmp_path, stop={"value": 4}, callbacks=[Asks()])).fit()[0]
    assert [metrics["value"] for _, metrics in result.best_checkpoints] == [2, 4] and "own" not in result.metrics and result.metrics["config"] == {}


def test_functions_are_not_asked_for_checkpoints(tmp_path):
    for config in (CheckpointConfig(checkpoint_at_end=True), CheckpointConfig(checkpoint_frequency=1)):
        with pytest.raises(ValueError, match="is for Trainable classes: the function steps"):
            Tuner(steps, run_config=run(tmp_path, checkpoint_config=config)).fit()


def test_what_is_no_trainable_is_refused(tmp_path):
    class Plain:
        def __init__(self, config):
            pass

    for use in (Tuner, lambda it: tune.register_trainable("plain", it), wrap_function):
        with pytest.raises(TypeError, match="Plain is a class that is no"):
            use(Plain)
    for use in (lambda it: tune.with_parameters(it, a=1), lambda it: tune.with_resources(it, {"cpu": 1})):
        with pytest.raises(ValueError, match="not the class Plain"):
            use(Plain)
    for spec in ({"run": steps, "nonsense": 1}, {"run": steps, "stop": {"a": {"b": 1}}}, {"run": steps, "stop": 3}):
        with pytest.raises(tune.TuneError):
            tune.run_experiments({"it": {"storage_path": str(tmp_path), **spec}})


@pytest.mark.parametrize("most", ["0", "-1", "many"])
def test_how_many_trials_may_be_pending_is_a_number(tmp_path, monkeypatch, most):
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", most)
    with pytest.raises(ValueError, match=f"TUNE_MAX_PENDING_TRIALS_PG is '{most}'"):
        Tuner(steps, param_space={"x": 1}, run_config=run(tmp_path)).fit()
    assert not any(tmp_path.iterdir())          # of a search that did not begin


def test_folders_have_the_trials_names(tmp_path):
    for name, begin in ((lambda trial: f"mine{trial.config['x']}", "mine1_0_x=1_"), (lambda trial: "y" * 300, "y" * 130)):
        grid = Tuner(steps, param_space={"x": tune.grid_search([1, 2])}, tune_config=TuneConfig(trial_name_creator=name), run_config=run(tmp_path)).fit()
        assert Path(grid[0].path).name.startswith(begin) and grid[0].path != grid[1].path


class Widens(FIFOScheduler):
    """Gives trial 0 other resources at its first report."""

    def on_trial_result(self, tune_controller, trial, result):
        if trial.config["x"] == 0 and result["score"] == 0 and not trial.resources_changed:
            return self.PAUSE
        return self.CONTINUE

    def choose_trial_to_run(self, tune_controller):
        trial = super().choose_trial_to_run(tune_controller)
        if trial is not None and trial.status == "PAUSED":
            tune_controller.update_resources(trial, {"cpu": 0.75})
        return trial


def test_resources_given_anew_are_those_of_trials_that_no_scheduler_changed(tmp_path):
    def trial(config):
        resources = tune.get_context().get_trial_resources().bundles
        tune.report({"score": 0, "cpu": resources[0]["CPU"]})
        if not (tmp_path / "flag").exists() and resources[0]["CPU"] != 0.5 or config["x"]:
            raise RuntimeError("not yet")

    Tuner(tune.with_resources(trial, {"cpu": 0.5}), param_space={"x": tune.grid_search([0, 1])}, tune_config=TuneConfig(scheduler=Widens()),
          run_config=run(tmp_path, name="e")).fit()
    (tmp_path / "flag").touch()
    grid = Tuner.restore(str(tmp_path / "e"), trainable=tune.with_resources(trial, {"cpu": 0.25}), resume_errored=True).fit()
    assert [r.metrics["cpu"] for r in grid] == [0.75, 0.25]


class Model:
    def __init__(self, number):
        self.number = number


class Size(NamedTuple):
    width: int
    height: int


def test_objects_of_a_space_are_renewed(tmp_path):
    def uses(config):
        model = raygo.get(config["models"][0])
        if model.number == 2:
            raise RuntimeError("too few")
        return {"number": model.number, "u": config["u"], "side": config["size"].height}

    def space(*numbers):
        return {"models": [tune.grid_search([raygo.put(Model(n)) for n in numbers])], "u": tune.uniform(0, 1), "size": Size(3, 4)}

    first = Tuner(uses, param_space=space(1, 2), run_config=run(tmp_path, name="e")).fit()
    assert first.num_errors == 1
    again = Tuner.restore(str(tmp_path / "e"), trainable=uses, param_space=space(11, 12), resume_errored=True).fit()
    assert [(r.metrics["number"], r.metrics["side"]) for r in again] == [(1, 4), (12, 4)] and [r.config["u"] for r in again] == [r.config["u"] for r in first]


def test_a_checkpoint_that_was_removed_is_passed_over(tmp_path):
    class Fails(Counter):
        def step(self):
            if self.value == 3 and not (tmp_path / "flag").exists():
                raise RuntimeError("not yet")
            return super().step()

    first = Tuner(Fails, run_config=run(tmp_path, name="e", stop={"value": 4}, checkpoint_config=CheckpointConfig(checkpoint_frequency=1))).fit()
    shutil.rmtree(first[0].checkpoint.path)
    (tmp_path / "flag").touch()
    result = Tuner.restore(str(tmp_path / "e"), trainable=Fails, resume_errored=True).fit()[0]
    assert result.error is None and result.metrics["value"] == 4 and result.metrics["iterations_since_restore"] == 2


def test_the_environment_names_callbacks(tmp_path, monkeypatch):
    (tmp_path / "their_callbacks.py").write_text("from raygo import tune\nseen = []\nclass Sees(tune.Callback):\n"
                                                 "    def on_trial_complete(self, trial, **info): seen.append(trial.last_result['x'])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAY_TUNE_CALLBACKS", "their_callbacks.Sees, ")
    Tuner(lambda config: {"x": 5}, run_config=run(tmp_path)).fit()
    assert sys.modules["their_callbacks"].seen == [5]
    for bad in ("their_callbacks.Gone", "nonsense", "json.JSONEncoder"):
        monkeypatch.setenv("RAY_TUNE_CALLBACKS", bad)
        with pytest.raises(ValueError, match=f"RAY_TUNE_CALLBACKS has '{bad}'"):
            Tuner(lambda config: {"x": 5}, run_config=run(tmp_path)).fit()


def test_numbers_of_workers_are_searched(tmp_path):
    from raygo.train import ScalingConfig
    from raygo.train.data_parallel_trainer import DataParallelTrainer

    trainer = DataParallelTrainer(lambda: raygo.train.report({"workers": raygo.train.get_context().get_world_size()}))
    grid = Tuner(trainer, param_space={"scaling_config": ScalingConfig(num_workers=tune.grid_search([1, 2]))}, run_config=run(tmp_path)).fit()
    assert not grid.errors and [r.metrics["workers"] for r in grid] == [1, 2]


class Hears(FIFOScheduler):
    def __init__(self):
        self.heard = []

    def on_trial_result(self, tune_controller, trial, result):
        self.heard.append(result["a/b"])
        return self.CONTINUE

    def on_trial_complete(self, tune_controller, trial, result):
        self.heard.append(("end", result["a/b"]))


class Proposes(Searcher):
    def __init__(self):
        super().__init__(metric="a/b", mode="max")
        self.heard = []

    def set_search_properties(self, metric, mode, config):
        return True

    def suggest(self, trial_id):
        return {"x": 5}

    def on_trial_result(self, trial_id, result):
        self.heard.append(result["a/b"])

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.heard.append(("end", result[self.metric]))


def test_schedulers_and_searchers_find_metrics_by_their_names(tmp_path):
    def nested(config):
        for i in range(9):
            tune.report({"a": {"b": config["x"] + i}})

    scheduler, searcher = Hears(), Proposes()
    grid = Tuner(nested, tune_config=TuneConfig(scheduler=scheduler, search_alg=searcher), run_config=run(tmp_path, stop={"a/b": 7})).fit()
    assert grid[0].metrics["a"] == {"b": 7} and scheduler.heard == searcher.heard == [5, 6, ("end", 7)]


def test_a_stopper_sees_what_is_returned(tmp_path):
    stopper = tune.stopper.ExperimentPlateauStopper("loss", top=3)
    grid = Tuner(lambda config: {"loss": 1.0}, tune_config=TuneConfig(num_samples=50, max_concurrent_trials=1), run_config=run(tmp_path, stop=stopper)).fit()
    assert len(grid) < 6


def test_a_number_that_is_returned_may_be_numpys(tmp_path):
    numpy = pytest.importorskip("numpy")
    grid = Tuner(lambda config: numpy.float32(0.5), run_config=run(tmp_path)).fit()
    assert grid.num_errors == 0 and grid[0].metrics["_metric"] == 0.5


def test_limits_of_concurrency_do_not_contradict(tmp_path):
    limited = ConcurrencyLimiter(Proposes(), max_concurrent=3)
    with pytest.raises(ValueError, match="max_concurrent_trials is 2, but search_alg is a ConcurrencyLimiter with max_concurrent=3"):
        Tuner(steps, tune_config=TuneConfig(search_alg=limited, max_concurrent_trials=2), run_config=run(tmp_path)).fit()
    limited.searcher.set_max_concurrency = lambda count: True         # it sees to it itself
    limited = ConcurrencyLimiter(limited.searcher, max_concurrent=1)
    assert [limited.suggest(str(i)) for i in range(2)] == [{"x": 5}] * 2


def test_a_trainers_trial_counts_on_where_it_was(tmp_path):
    from raygo.train.data_parallel_trainer import DataParallelTrainer

    def loop():
        checkpoint = raygo.train.get_checkpoint()
        for _ in range(2):
            raygo.train.report({"had": bool(checkpoint)}, checkpoint=Checkpoint.from_directory(tmp_path / "c"))
        if not checkpoint:
            raise RuntimeError("once")

    (tmp_path / "c").mkdir()
    grid = Tuner(DataParallelTrainer(loop), run_config=run(tmp_path, failure_config=FailureConfig(max_failures=1))).fit()
    assert grid[0].metrics["had"] and grid[0].metrics["training_iteration"] == 4 and grid[0].metrics["iterations_since_restore"] == 2
    assert "training_iteration" not in repr(grid[0]) and "'had': True" in repr(grid[0])
