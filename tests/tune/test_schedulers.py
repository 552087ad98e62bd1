"""Schedulers against traces worked out by hand."""
from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from raygo import tune
from raygo.tune.experiment.trial import Trial
from raygo.tune.schedulers import (
    PB2,
    ASHAScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
    create_scheduler,
)
from raygo.tune.schedulers.pbt import explore

GO, STOP, PAUSE, NOOP = TrialScheduler.CONTINUE, TrialScheduler.STOP, TrialScheduler.PAUSE, TrialScheduler.NOOP


class Controller:
    """A driver whose trials run when a test says so."""

    def __init__(self, folder="."):
        self.trials, self.stopped, self.restarted = [], [], []
        self.search_alg = SimpleNamespace()
        self.storage = SimpleNamespace(local_path=str(folder), path=str(folder))

    def add(self, scheduler, name, **config):
        trial = Trial("f", trial_id=name, config=config, experiment_tag=name)
        trial.status = Trial.RUNNING
        self.trials.append(trial)
        scheduler.on_trial_add(self, trial)
        return trial

    def get_trials(self):
        return self.trials

    def get_live_trials(self):
        return {t for t in self.trials if not t.is_finished()}

    def get_live_trials_in_order(self):
        return [t for t in self.trials if not t.is_finished()]

    def startable_trials(self):
        return [t for t in self.trials if t.status in (Trial.PENDING, Trial.PAUSED)]

    def has_running_trials(self):
        return any(t.status == Trial.RUNNING for t in self.trials)

    def stop_trial(self, trial):
        self.stopped.append(trial.trial_id)
        trial.status = Trial.TERMINATED

    def save_trial(self, trial):
        return trial.latest_checkpoint_result

    def restart_from(self, trial, config, checkpoint):
        self.restarted.append((trial.trial_id, config, checkpoint))
        trial.set_config(config)
        trial.status = Trial.PAUSED

    def report(self, scheduler, trial, iteration, **metrics):
        result = {"training_iteration": iteration, "time_total_s": float(iteration), **metrics}
        trial.update_last_result(result)
        action = scheduler.on_trial_result(self, trial, result)
        if action == PAUSE:
            trial.status = Trial.PAUSED
        elif action == STOP:
            trial.status = Trial.TERMINATED
            scheduler.on_trial_complete(self, trial, result)
        return action


def test_asha_compares_at_rungs_only():
    asha, c = ASHAScheduler(metric="m", mode="max", max_t=16, grace_period=2, reduction_factor=4), Controller()
    a, b, d, e = (c.add(asha, name) for name in "abde")
    assert [c.report(asha, a, i, m=1.0) for i in (1, 2, 3, 7, 8)] == [GO] * 5          # first at every rung
    assert c.report(asha, b, 1, m=0.0) == GO                                           # no rung yet
    assert c.report(asha, b, 2, m=0.5) == STOP                                         # the 75th percentile of (1.0) is 1.0
    assert c.report(asha, d, 2, m=2.0) == GO
    # (1.0, 0.5, 2.0): the 75th percentile is 1.5
    assert c.report(asha, e, 2, m=1.4) == STOP
    f = c.add(asha, "f")
    # (0.5, 1.0, 1.4, 2.0): 1.55
    assert c.report(asha, f, 3, m=1.6) == GO
    assert c.report(asha, a, 16, m=9.0) == STOP                                        # max_t


def test_asha_minimises_and_nan_is_worst():
    asha, c = ASHAScheduler(metric="m", mode="min", max_t=9, reduction_factor=3), Controller()
    bad, good, late = (c.add(asha, name) for name in ("bad", "good", "late"))
    assert c.report(asha, bad, 1, m=math.nan) == GO          # nobody to compare with
    assert c.report(asha, good, 1, m=1.0) == GO
    assert c.report(asha, bad, 3, m=math.nan) == GO
    assert c.report(asha, good, 3, m=0.9) == GO
    assert c.report(asha, late, 1, m=math.nan) == STOP
    assert c.report(asha, good, 4, m=99.0) == GO             # recorded already: compared once per rung


def test_asha_brackets_begin_later():
    asha = ASHAScheduler(metric="m", mode="max", max_t=27, reduction_factor=3, brackets=3)
    assert [[rung.milestone for rung in b.rungs] for b in asha._brackets] == [[27, 9, 3, 1], [27, 9, 3], [27, 9]]
    for bad in ({"max_t": 1, "grace_period": 5}, {"reduction_factor": 1}, {"brackets": 0}, {"mode": "best"}):
        with pytest.raises(AssertionError):
            ASHAScheduler(**bad)


def test_hyperband_halves_when_all_have_arrived():
    hb, c = HyperBandScheduler(metric="m", mode="max", max_t=9, reduction_factor=3), Controller()
    full = [c.add(hb, f"full{i}") for i in range(3)]                 # bracket 0: 3 trials of 9
    part = [c.add(hb, f"part{i}") for i in range(5)]                 # bracket 1: 5 trials, first look at 3
    assert [(b.size, b.milestone) for b in hb._bands[0]] == [(3, 9), (5, 3)]
    assert c.report(hb, full[0], 3, m=0) == GO and c.report(hb, full[0], 9, m=0) == STOP
    assert [c.report(hb, t, 3, m=i) for i, t in enumerate(part[:4])] == [PAUSE] * 4
    assert c.report(hb, part[4], 3, m=4) == GO                       # the last to arrive, and among the best two
    assert sorted(c.stopped) == ["part0", "part1", "part2"] and part[3].status == Trial.PENDING
    assert hb.choose_trial_to_run(c) is part[3]
    c.add(hb, "more")
    assert (hb._bands[0][2].size, hb._bands[0][2].milestone) == (9, 1)


def test_hyperband_goes_on_without_those_that_fail():
    hb, c = HyperBandScheduler(metric="m", mode="min", max_t=9, reduction_factor=3), Controller()
    [c.add(hb, f"full{i}") for i in range(3)]
    a, b = c.add(hb, "a"), c.add(hb, "b")
    assert c.report(hb, a, 3, m=1) == PAUSE
    b.status = Trial.ERROR
    hb.on_trial_error(c, b)
    assert a.status == Trial.PENDING                                 # alone in its bracket now


def test_median_compares_with_means_up_to_the_same_time():
    rule, c = MedianStoppingRule(time_attr="training_iteration", metric="m", mode="max", grace_period=2, min_samples_required=2), Controller()
    a, b, d, e = (c.add(rule, name) for name in "abde")
    for i in (1, 2, 3):
        assert c.report(rule, a, i, m=10.0 * i) == GO                # means 10, 15, 20
    assert c.report(rule, b, 1, m=2.0) == GO and c.report(rule, b, 2, m=4.0) == GO      # one other trial only: too few
    assert c.report(rule, d, 1, m=0.0) == GO                         # within the grace period
    assert c.report(rule, d, 2, m=8.0) == STOP                       # others' means at 2 are 15 and 3: the median is 9
    assert c.report(rule, e, 2, m=9.5) == GO                         # means 15, 3, 4


def test_pbt_lets_the_weak_take_from_the_strong(tmp_path):
    pbt = PopulationBasedTraining(time_attr="training_iteration", metric="m", mode="max", perturbation_interval=2, quantile_fraction=0.5,
                                  hyperparam_mutations={"lr": [1, 2, 4]}, resample_probability=0)
    c = Controller(tmp_path)
    weak, strong = c.add(pbt, "weak", lr=1), c.add(pbt, "strong", lr=2)
    strong.checkpoints = [("their checkpoint", {"training_iteration": 2})]
    assert c.report(pbt, weak, 1, m=0) == GO                         # before the interval is over
    assert c.report(pbt, weak, 2, m=0) == PAUSE                      # the other has not begun
    weak.status = Trial.RUNNING
    assert c.report(pbt, strong, 1, m=4) == GO
    assert c.report(pbt, strong, 2, m=5) == GO
    assert c.report(pbt, weak, 4, m=1) == NOOP
    ((who, config, checkpoint),) = c.restarted
    assert who == "weak" and config["lr"] in (1, 4) and checkpoint[0] == "their checkpoint"
    assert "@perturbed[lr=" in weak.experiment_tag
    line = (tmp_path / "pbt_policy_weak.txt").read_text()
    assert line == (tmp_path / "pbt_global.txt").read_text() and line.startswith('["weak", "strong", 4, 2, {"lr": 2}, {"lr": ')


def test_pbt_in_step_waits_for_all(tmp_path):
    pbt = PopulationBasedTraining(time_attr="training_iteration", metric="m", mode="max", perturbation_interval=2, quantile_fraction=0.5,
                                  hyperparam_mutations={"lr": tune.uniform(0, 1)}, synch=True)
    c = Controller(tmp_path)
    a, b = c.add(pbt, "a"), c.add(pbt, "b")
    assert 0 <= a.config["lr"] <= 1                                  # drawn, as the space did not have it
    b.checkpoints = [("b's", {})]
    assert c.report(pbt, a, 2, m=0) == PAUSE and pbt.choose_trial_to_run(c) is None
    assert c.report(pbt, b, 2, m=1) == PAUSE
    assert [r[0] for r in c.restarted] == ["a"] and pbt.choose_trial_to_run(c) in (a, b)


@pytest.mark.parametrize("how", ["on_trial_complete", "on_trial_error"])
def test_pbt_in_step_does_not_wait_for_who_has_ended(tmp_path, how):
    pbt = PopulationBasedTraining(time_attr="training_iteration", metric="m", mode="max", perturbation_interval=2, quantile_fraction=0.5,
                                  hyperparam_mutations={"lr": tune.uniform(0, 1)}, synch=True)
    c = Controller(tmp_path)
    a, b, gone = c.add(pbt, "a"), c.add(pbt, "b"), c.add(pbt, "gone")
    b.checkpoints = [("b's", {})]
    assert c.report(pbt, a, 2, m=0) == c.report(pbt, b, 2, m=1) == PAUSE and pbt.choose_trial_to_run(c) is None
    gone.status = Trial.ERROR
    getattr(pbt, how)(c, gone, *([{}] if how == "on_trial_complete" else []))
    assert [r[0] for r in c.restarted] == ["a"] and pbt.choose_trial_to_run(c) in (a, b)


def test_the_median_forgets_what_a_trial_reports_again():
    rule, c = MedianStoppingRule(time_attr="training_iteration", metric="m", mode="max", grace_period=1, min_samples_required=1), Controller()
    a = c.add(rule, "a")
    for i in (1, 2, 3, 2, 3):            # it fell back to its checkpoint after 1
        c.report(rule, a, i, m=float(i))
    assert rule._seen["a"] == [(1, 1.0, 1.0), (2, 3.0, 2.0), (3, 6.0, 3.0)]


def test_explore_stays_in_the_domain():
    for _ in range(50):
        new, _ = explore({"lr": 0.9, "n": 3, "deep": {"c": "x"}, "free": 1.0},
                         {"lr": tune.uniform(0.1, 1), "n": tune.randint(1, 4), "deep": {"c": tune.choice(["x", "y"])}, "free": lambda: 7.0}, 0.3, (1.2, 0.8))
        assert 0.1 <= new["lr"] <= 1 and new["n"] in (1, 2, 3) and isinstance(new["n"], int) and new["deep"]["c"] in ("x", "y")
        assert new["free"] in (7.0, 1.2, 0.8)
    new, _ = explore({"a": 1}, {"a": [1, 2]}, 0, (1,), lambda config: {**config, "b": 1})
    assert new["b"] == 1


def test_pbt_refuses_what_it_cannot_do():
    with pytest.raises(tune.TuneError):
        PopulationBasedTraining(metric="m", mode="max")
    for bad in ({"quantile_fraction": 0.7}, {"perturbation_interval": 0}):
        with pytest.raises(ValueError):
            PopulationBasedTraining(hyperparam_mutations={"a": [1]}, **bad)
    with pytest.raises(TypeError):
        PopulationBasedTraining(hyperparam_mutations={"a": 3})
    with pytest.raises(ValueError, match="crystal"):
        create_scheduler("crystal")


def test_pb2_proposes_where_the_process_expects_most(tmp_path):
    np = pytest.importorskip("numpy")
    pb2 = PB2(time_attr="training_iteration", metric="m", mode="max", perturbation_interval=1, hyperparam_bounds={"lr": [0.0, 1.0]}, quantile_fraction=0.5)
    np.random.seed(0)
    # The metric rises fastest at 0.8, whatever the time.
    pb2._data = [([float(t), 0.0, lr], 1 - 4 * (lr - 0.8) ** 2) for t in range(3) for lr in np.linspace(0, 1, 11)]
    (proposed,) = pb2._propose((3.0, 0.0))
    assert type(proposed) is float and abs(proposed - 0.8) < 0.2
    c = Controller(tmp_path)
    weak, strong = c.add(pb2, "weak", lr=0.1), c.add(pb2, "strong", lr=0.7)
    strong.checkpoints = [("theirs", {"training_iteration": 1})]
    assert c.report(pb2, weak, 0, m=0.0) == GO and c.report(pb2, strong, 1, m=1.0) == GO and c.report(pb2, weak, 1, m=0.0) == NOOP
    assert c.restarted[0][0] == "weak" and 0 <= c.restarted[0][1]["lr"] <= 1
    with pytest.raises(ValueError, match="low < high"):
        PB2(hyperparam_bounds={"lr": [1, 0]})
