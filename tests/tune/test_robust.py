"""What goes wrong in one trial, a user's code or the disk: the search goes on, or says why it cannot and is found again."""
from __future__ import annotations

import logging
import os
import random
import resource
import sys
import time
from pathlib import Path

import pytest

from raygo import tune
from raygo.tune import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, TuneConfig, Tuner
from raygo.tune.execution import runs
from raygo.tune.execution.preload import modules_of
from raygo.tune.execution.schedule import restore_scheduler, save_scheduler, tell_scheduler
from raygo.tune.execution.state import ExperimentState, load_trials
from raygo.tune.execution.table import TrialTable
from raygo.tune.experiment.trial import Trial
from raygo.tune.schedulers import ASHAScheduler, FIFOScheduler, HyperBandScheduler, PopulationBasedTraining, TrialScheduler
from raygo.tune.trainable import wrap_function


def run(folder: Path, **more) -> RunConfig:
    return RunConfig(storage_path=str(folder), verbose=0, **more)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


class Counts(tune.Trainable):
    """Trial 0 cannot be saved until trial 1 is at its fourth step."""

    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        if self.config["i"] == 1 and self.n == 4:
            Path(self.config["flag"]).touch()
        return {"n": self.n, "m": self.config["i"], "done": self.n >= 6}

    def save_checkpoint(self, folder):
        if self.config["i"] == 0:
            wait_for(Path(self.config["flag"]))
        Path(folder, "n").write_text(str(self.n))

    def load_checkpoint(self, folder):
        self.n = int(Path(folder, "n").read_text())


class Saves(FIFOScheduler):
    """Asks for a checkpoint at the second report of each trial."""

    def on_trial_result(self, tune_controller, trial, result):
        if result["n"] == 2:
            tune_controller.save_trial(trial)
        return TrialScheduler.CONTINUE


@pytest.mark.parametrize("why", ["scheduler", "end"])
def test_a_save_that_takes_long_holds_up_nobody_else(tmp_path, monkeypatch, caplog, why):
    monkeypatch.setattr(runs, "_SLOW_SAVE_S", 0.0)
    space = {"i": tune.grid_search([0, 1]), "flag": str(tmp_path / "flag")}
    more = {"scheduler": {}, "end": {"stop": lambda trial_id, result: result["n"] >= 5 - 3 * (result["m"] == 0),
                                     "checkpoint_config": CheckpointConfig(checkpoint_at_end=True)}}[why]
    with caplog.at_level(logging.WARNING, "raygo.tune"):
        grid = Tuner(Counts, param_space=space, tune_config=TuneConfig(scheduler=Saves() if why == "scheduler" else None),
                     run_config=run(tmp_path, **more)).fit()
    assert grid.num_errors == 0 and [r.metrics["n"] for r in grid] == ([6, 6] if why == "scheduler" else [2, 5])
    for result, n in zip(grid, ("22" if why == "scheduler" else "25"), strict=True):
        with result.checkpoint.as_directory() as folder:
            assert Path(folder, "n").read_text() == n
    assert "save_checkpoint of Counts_" in caplog.text and "Other trials go on" in caplog.text


class SavesAndStops(FIFOScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        tune_controller.save_trial(trial)
        return TrialScheduler.STOP


def test_a_save_is_waited_for_when_the_trial_stops(tmp_path):
    space = {"i": 1, "flag": str(tmp_path / "flag")}
    result = Tuner(Counts, param_space=space, tune_config=TuneConfig(scheduler=SavesAndStops()), run_config=run(tmp_path)).fit()[0]
    assert result.error is None and result.metrics["n"] == 1 and Path(result.checkpoint.path, "n").read_text() == "1"


class Takes(FIFOScheduler):
    """Has trial 1 go on from trial 0 before trial 0 is saved."""

    done = False

    def on_trial_result(self, tune_controller, trial, result):
        donor, other = tune_controller.get_trials()
        if trial is donor and result["n"] == 2 and not self.done:
            self.done = True
            tune_controller.restart_from(other, {**other.config, "i": 2}, tune_controller.save_trial(donor))
            assert other not in tune_controller.startable_trials()       # there is nothing to start from yet
        return TrialScheduler.CONTINUE


def test_a_trial_waits_for_a_checkpoint_that_is_being_made(tmp_path):
    class Slow(Counts):
        def save_checkpoint(self, folder):
            time.sleep(0.1)
            Path(folder, "n").write_text(str(100 + self.n))

    space = {"i": tune.grid_search([0, 1]), "flag": str(tmp_path / "flag")}
    # One at a time: the second has not begun.  It starts at the donor's 102.
    grid = Tuner(tune.with_resources(Slow, {"cpu": 4}), param_space=space, tune_config=TuneConfig(scheduler=Takes()), run_config=run(tmp_path)).fit()
    assert grid.num_errors == 0 and [r.metrics["n"] for r in grid] == [6, 103] and grid[1].config["i"] == 2


def test_a_donor_that_cannot_be_saved_fails_alone(tmp_path, caplog):
    class Broken(Counts):
        def save_checkpoint(self, folder):
            raise ValueError("no room for me")

    space = {"i": tune.grid_search([0, 1]), "flag": str(tmp_path / "flag")}
    with caplog.at_level(logging.WARNING, "raygo.tune"):
        grid = Tuner(tune.with_resources(Broken, {"cpu": 4}), param_space=space, tune_config=TuneConfig(scheduler=Takes()), run_config=run(tmp_path)).fit()
    assert "no room for me" in str(grid[0].error) and grid[1].error is None and grid[1].metrics["n"] == 6
    assert "has failed to make a checkpoint; it goes on from the beginning" in caplog.text


def test_what_a_callback_raises_keeps_nothing_from_the_disk(tmp_path):
    class Raises(tune.Callback):
        def on_experiment_end(self, trials, **info):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        Tuner(lambda config: {"x": config["x"]}, param_space={"x": tune.grid_search([1, 2])},
              run_config=run(tmp_path, name="e", callbacks=[Raises()])).fit()
    (log,) = (tmp_path / "e").glob("experiment_log-*.bin")
    log.unlink()                          # the snapshot alone has it all
    analysis = tune.ExperimentAnalysis(str(tmp_path / "e"))
    assert [(t.status, t.last_result["x"]) for t in analysis.trials] == [("TERMINATED", 1), ("TERMINATED", 2)]


def test_a_full_disk_leaves_whole_records(tmp_path):
    trials: list[Trial] = []
    state = ExperimentState(str(tmp_path), trials)
    state.begin()
    log = next(tmp_path.glob("experiment_log-*.bin"))

    def add(name: str) -> None:
        trial = Trial("f", trial_id=name, config={"x": "y" * 1000}, stub=True)
        trial.relative_logdir = name
        trials.append(trial)
        state.added(trial)

    add("a")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 500, hard))
    try:
        with pytest.raises(tune.TuneError, match=rf"cannot be written down any more.*{log.name}.*Make room there"):
            add("b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    add("c")
    storage = tune.execution.storage.ExperimentStorage(str(tmp_path.parent), tmp_path.name, read_only=True)
    assert [t.trial_id for t in load_trials(str(tmp_path), storage, {})] == ["a", "c"]
    state.close()


def explores(config):
    raise KeyError("my explore")


@pytest.mark.parametrize("explore", [explores, lambda config: None])
def test_an_explore_function_that_fails_fails_the_trial(tmp_path, explore):
    pbt = PopulationBasedTraining(time_attr="training_iteration", metric="m", mode="max", perturbation_interval=2, quantile_fraction=0.5,
                                  hyperparam_mutations={"j": [1, 2]}, custom_explore_fn=explore, synch=True)
    (tmp_path / "flag").touch()
    grid = Tuner(Counts, param_space={"i": tune.grid_search([0, 1]), "flag": str(tmp_path / "flag")}, tune_config=TuneConfig(scheduler=pbt),
                 run_config=run(tmp_path)).fit()
    assert grid.num_errors == 1 and grid[1].metrics["n"] == 6
    said = str(grid[0].error)
    assert "could not make a new config for Counts_" in said and ("my explore" in said or "returned a NoneType" in said) and "custom_explore_fn" in said


def test_a_population_without_checkpoints_keeps_its_values(tmp_path, caplog):
    def plain(config):
        for n in range(4):
            tune.report({"m": config["x"] * (n + 1)})

    pbt = PopulationBasedTraining(time_attr="training_iteration", metric="m", mode="max", perturbation_interval=1, quantile_fraction=0.5,
                                  hyperparam_mutations={"x": [1, 2]})
    grid = Tuner(plain, param_space={"x": tune.grid_search([1, 2])}, tune_config=TuneConfig(scheduler=pbt), run_config=run(tmp_path)).fit()
    assert grid.num_errors == 0 and {r.config["x"] for r in grid} == {1, 2}
    assert caplog.text.count("keeps its own values") <= 1


def test_what_a_users_scheduler_raises_fails_the_trial(tmp_path):
    class Raises(FIFOScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            if trial.config["i"] == 0:
                raise FileNotFoundError("my rules are gone")
            return TrialScheduler.CONTINUE

    grid = Tuner(lambda config: tune.report({"m": 1}), param_space={"i": tune.grid_search([0, 1])}, tune_config=TuneConfig(scheduler=Raises()),
                 run_config=run(tmp_path, failure_config=FailureConfig(max_failures=2))).fit()
    assert grid.num_errors == 1 and "my rules are gone" in str(grid[0].error)
    # What was raised here has its traceback in the trial's file.
    assert "on_trial_result" in Path(grid[0].path, "error.txt").read_text()


SEEN: list[tuple[int, int]] = []


class Remembers(FIFOScheduler):
    def __init__(self):
        self.seen = []
        self.trials = {}

    def on_trial_add(self, tune_controller, trial):
        self.trials[trial.trial_id] = trial

    def on_trial_result(self, tune_controller, trial, result):
        assert self.trials[trial.trial_id] is trial
        self.seen.append((trial.config["i"], result["n"]))
        SEEN[:] = self.seen
        return TrialScheduler.CONTINUE


def test_a_restored_search_has_its_scheduler_back(tmp_path):
    class Interrupts(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["n"] == 3 and not (tmp_path / "once").exists():
                (tmp_path / "once").touch()
                raise KeyboardInterrupt

    small = tmp_path / "small"
    small.mkdir()

    def trial(config):
        start, checkpoint = 0, tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                start = int(Path(folder, "n").read_text())
        for n in range(start + 1, 6):
            (small / "n").write_text(str(n))
            tune.report({"n": n}, checkpoint=Checkpoint.from_directory(small))

    first = Tuner(trial, param_space={"i": tune.grid_search([0, 1])}, tune_config=TuneConfig(scheduler=Remembers(), max_concurrent_trials=1),
                  run_config=run(tmp_path, name="e", callbacks=[Interrupts()])).fit()
    assert [r.metrics.get("n") for r in first] == [3] and SEEN == [(0, 1), (0, 2), (0, 3)]
    grid = Tuner.restore(str(tmp_path / "e"), trainable=trial).fit()
    assert [r.metrics["n"] for r in grid] == [5, 5]
    assert [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)] + [(1, n) for n in range(1, 6)] == SEEN


def fresh(names: str) -> list[Trial]:
    return [Trial("f", trial_id=name, config={}) for name in names]


def test_a_scheduler_is_saved_with_its_trials(tmp_path):
    def bands() -> HyperBandScheduler:
        return HyperBandScheduler(metric="m", mode="max", max_t=9)

    before, scheduler = fresh("abc"), bands()
    for trial in before:
        scheduler.on_trial_add(None, trial)
    save_scheduler(scheduler, before, str(tmp_path), "s1")
    after, restored = fresh("abcd"), bands()
    after[1].status = Trial.ERROR
    known = restore_scheduler(restored, after, str(tmp_path))
    assert known == dict.fromkeys("abc", "PENDING") and next(iter(restored._bracket_of["a"].trials.values())) is after[0]
    tell_scheduler(restored, None, after, known)
    assert set(restored._bracket_of) == {"a", "c", "d"}
    # One that was begun afresh has another id: what the scheduler knew is of no use.
    assert restore_scheduler(bands(), fresh("abx"), str(tmp_path)) is None
    assert restore_scheduler(ASHAScheduler(metric="m", mode="max"), after, str(tmp_path)) is None


def test_a_table_knows_who_could_start():
    table, rng = TrialTable([]), random.Random(3)
    busy, held = set(), set()
    for i in range(600):
        if i % 3 == 0:
            table.add(Trial("f", trial_id=str(i), config={}))
        trial = rng.choice(table.all)
        act = rng.choice([table.took_process, table.left_process, table.hold, table.let_go, table.ended])
        if act is table.ended and rng.random() < 0.7:
            continue
        act(trial)
        {table.took_process: busy.add, table.left_process: busy.discard, table.hold: held.add, table.let_go: held.discard,
         table.ended: held.discard}[act](trial.trial_id)
        naive = [t for t in table.all if t.trial_id in table.live and t.trial_id not in busy | held]
        assert table.startable() == naive and table.has_pending(len(naive)) and not table.has_pending(len(naive) + 1)
    assert table.get("3") is table.all[1] and table.get("nobody") is None and len(naive) > 5


def test_what_a_trainable_imports_is_found():
    import joblib as renamed

    def inside(config):
        import json

        import pandas.api.types  # noqa: F401

        return json, renamed, helper

    def helper():
        from numpy import random

        return random

    assert set(modules_of(wrap_function(inside))) == {"pandas.api.types", "joblib", "numpy"}

    class Classy(tune.Trainable):
        def step(self):
            import numpy

            return {"x": numpy.ones(1)}

    assert modules_of(Classy) == ["numpy"]
    assert modules_of(wrap_function(lambda config: os.getcwd())) == []


def test_a_trial_begins_with_what_it_imports(tmp_path):
    def had(config):
        before = "cloudpickle.cloudpickle_fast" in sys.modules
        import cloudpickle.cloudpickle_fast  # noqa: F401

        return {"before": before}

    grid = Tuner(had, run_config=run(tmp_path)).fit()
    assert grid[0].metrics["before"]
