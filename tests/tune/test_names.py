"""Names that libraries take from Ray, and what users meet when they give something odd."""
from __future__ import annotations

import pytest

from raygo import tune
from raygo.tune import RunConfig, TuneConfig, Tuner
from raygo.tune.experiment.trial import Trial
from raygo.tune.experimental.output import AirVerbosity, get_air_verbosity
from raygo.tune.search.optuna import OptunaSearch
from raygo.tune.utils import deep_update, flatten_dict, merge_dicts, unflattened_lookup
from raygo.tune.utils.log import Verbosity, has_verbosity, set_verbosity


def test_dicts_are_flattened_merged_and_looked_up():
    assert flatten_dict({"a": {"b": 1, "c": {}}, "d": [{"e": 1}]}) == {"a/b": 1, "d": [{"e": 1}]}
    assert flatten_dict({"d": [{"e": 1}]}, ".", flatten_list=True) == {"d.0.e": 1}
    with pytest.raises(ValueError, match="Found delimiter `/`"):
        flatten_dict({"a/b": 1}, prevent_delimiter=True)
    first = {"a": 1, "b": {"c": 1}}
    assert merge_dicts(first, {"b": {"d": 2}}) == {"a": 1, "b": {"c": 1, "d": 2}} and first == {"a": 1, "b": {"c": 1}}
    assert unflattened_lookup("a/0", {"a": [5]}) == 5 and unflattened_lookup("a/z", {"a": {}}, default=3) == 3
    with pytest.raises(KeyError, match="z"):
        unflattened_lookup("a/z", {"a": {}})
    with pytest.raises(ValueError, match="Unknown config parameter `b`"):
        deep_update({"a": 1}, {"b": 2})
    with pytest.raises(ValueError, match="Unknown config parameter `z`"):
        deep_update({"s": {"k": 1}}, {"s": {"z": 2}})
    assert deep_update({"s": {"k": 1}}, {"s": {"z": 2}}, allow_new_subkey_list=["s"]) == {"s": {"k": 1, "z": 2}}
    assert deep_update({"s": {"type": "x", "k": 1}}, {"s": {"type": "y"}}, True, None, ["s"]) == {"s": {"type": "y"}}
    assert deep_update({"s": {"k": 1}}, {"s": {"z": 2}}, override_all_key_list=["s"]) == {"s": {"z": 2}}


def test_verbosity():
    assert get_air_verbosity(3) is AirVerbosity.VERBOSE and get_air_verbosity(0) == 0 and repr(AirVerbosity.DEFAULT) == "1"
    set_verbosity(1)
    try:
        assert has_verbosity(Verbosity.V1_EXPERIMENT) and not has_verbosity(2)
    finally:
        set_verbosity(3)


def test_a_trial_as_text():
    trial = Trial("f", config={"x": 1, "g": len}, trial_id="abc", evaluated_params={"x": 1}, experiment_tag="0_x=1", stub=True, max_failures=2)
    trial.update_last_result({"loss": 0.5, "training_iteration": 4})
    trial.num_failures = 1
    again = Trial.from_json_state(trial.get_json_state(), stub=True)
    assert (again.trial_id, again.config, again.evaluated_params, again.max_failures, again.num_failures) == ("abc", {"x": 1, "g": len}, {"x": 1}, 2, 1)
    assert again.last_result == trial.last_result and again.metric_analysis["loss"]["min"] == 0.5 and again.get_trainable_cls() is None
    assert Trial.from_json_state(trial.get_json_state()[0]).last_result == {}
    again.update_resources({"cpu": 2})
    assert again.placement_group_factory.bundles == [{"CPU": 2}]


def test_optunas_space():
    distributions = pytest.importorskip("optuna").distributions
    space = OptunaSearch.convert_search_space({"a": tune.uniform(0, 1), "b": {"c": tune.choice([1, 2]), "d": tune.randint(1, 5)}, "e": 3})
    assert space == {"a": distributions.FloatDistribution(0, 1), "b/c": distributions.CategoricalDistribution([1, 2]),
                     "b/d": distributions.IntDistribution(1, 4)}


def plain(config):
    tune.report({"loss": 1})


def test_what_is_odd_is_said(tmp_path, monkeypatch):
    def fit(trainable=plain, space=None, **config):
        return Tuner(trainable, param_space=space, tune_config=TuneConfig(**config), run_config=RunConfig(storage_path=str(tmp_path), verbose=0)).fit()

    with pytest.raises(ValueError, match=r"choice\(\[\]\)"):
        tune.choice([])
    with pytest.raises(ValueError, match="a trial has to reserve something"):
        tune.with_resources(plain, {"cpu": 0})
    with pytest.raises(ValueError, match="sample_from at a/b failed: ZeroDivisionError"):
        fit(space={"a": {"b": tune.sample_from(lambda spec: 1 / 0)}})
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="storage_path that can be written"):
        Tuner(plain, run_config=RunConfig(storage_path=str(tmp_path / "file"), name="x", verbose=0)).fit()
    grid = fit(metric="acc", mode="max")
    assert "`acc` that TuneConfig expects" in str(grid.errors[0]) and "plain_" in str(grid.errors[0]) and "reported loss" in str(grid.errors[0])
    assert len(fit(space={"x": tune.uniform(0, 1)}, num_samples=-1, time_budget_s=0.5)) > 0


@pytest.mark.timeout(120)
def test_a_trial_that_no_machine_can_run_says_so(tmp_path):
    grid = Tuner(tune.with_resources(plain, {"cpu": 1000}), run_config=RunConfig(storage_path=str(tmp_path), verbose=0)).fit()
    (trial,) = grid._experiment_analysis.trials
    assert trial.error_text.startswith(f"{trial} cannot run: it asks for 1000 CPU.") and "tune.with_resources" in trial.error_text
