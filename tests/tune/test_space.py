"""Search spaces: what is drawn, what is crossed, and what is refused where it is written."""
from __future__ import annotations

import math

import numpy as np
import pytest

from raygo import tune
from raygo.tune.search.basic_variant import BasicVariantGenerator
from raygo.tune.search.variant_generator import RecursiveDependencyError, count_variants, format_vars, generate_variants


@pytest.mark.parametrize("bad", [
    lambda: tune.uniform(2, 1), lambda: tune.uniform(0, math.nan), lambda: tune.loguniform(-1, 1), lambda: tune.loguniform(0, 1), lambda: tune.choice([]),
    lambda: tune.randint(3, 3), lambda: tune.quniform(0, 1, 0.3), lambda: tune.quniform(0, 1, 0), lambda: tune.randn(0, -1), lambda: tune.grid_search([]),
    lambda: tune.lograndint(0, 10), lambda: tune.sample_from(3), lambda: tune.sample_from(lambda a, b: 1),
    lambda: tune.qrandint(4, 6, 7), lambda: tune.uniform("a", 1), lambda: tune.randint(1.5, 3), lambda: tune.choice(3), lambda: tune.grid_search(3),
])
def test_bad_bounds_fail_where_they_are_written(bad):
    with pytest.raises(ValueError):
        bad()


def test_draws_are_within_bounds_and_of_the_right_type():
    for domain, lowest, highest, kind in ((tune.uniform(-2, 3), -2, 3, float), (tune.loguniform(1e-3, 1), 1e-3, 1, float), (tune.randint(2, 5), 2, 4, int),
                                          (tune.lograndint(1, 9), 1, 8, int), (tune.qrandint(0, 10, 5), 0, 10, int), (tune.quniform(0, 1, 0.25), 0, 1, float)):
        drawn = domain.sample(size=300, random_state=3)
        assert all(lowest <= value <= highest and type(value) is kind for value in drawn)
        assert drawn == domain.sample(size=300, random_state=3)
    assert set(tune.quniform(0, 1, 0.25).sample(size=300)) == {0, 0.25, 0.5, 0.75, 1}
    assert set(tune.qrandint(0, 10, 5).sample(size=300)) == {0, 5, 10}
    # A bound that is no multiple itself is not drawn.
    assert set(tune.qrandint(1, 10, 3).sample(size=300)) == {3, 6, 9} and set(tune.qlograndint(1, 10, 2).sample(size=300)) == {2, 4, 6, 8, 10}


def test_grids_are_crossed_the_first_turns_fastest():
    space = {"a": tune.grid_search([1, 2]), "b": {"c": tune.grid_search("xy")}, "d": 7}
    got = [(config["a"], config["b"]["c"], config["d"]) for _, config in generate_variants(space)]
    assert got == [(1, "x", 7), (2, "x", 7), (1, "y", 7), (2, "y", 7)] and count_variants(space) == 4


def test_functions_see_what_is_known_in_any_order():
    space = {"z": tune.sample_from(lambda spec: spec.config.y + 1), "y": tune.sample_from(lambda c: c["x"] * 10), "x": tune.grid_search([1, 2]),
             "n": {"k": tune.sample_from(lambda: 5)}}
    assert [config for _, config in generate_variants(space)] == [{"z": 11, "y": 10, "x": 1, "n": {"k": 5}}, {"z": 21, "y": 20, "x": 2, "n": {"k": 5}}]
    with pytest.raises(RecursiveDependencyError, match="a, b wait for each other: `a` recursively depends on"):
        next(generate_variants({"a": tune.sample_from(lambda s: s.b), "b": tune.sample_from(lambda s: s.a)}))


def test_chosen_spaces_are_drawn_from():
    space = {"opt": tune.choice([{"kind": "sgd", "lr": tune.uniform(0, 1), "more": [tune.choice([1, 2])]}])}
    known, config = next(generate_variants(space))
    assert 0 <= config["opt"]["lr"] <= 1 and config["opt"]["more"][0] in (1, 2)
    assert {"/".join(map(str, path)) for path in known} == {"opt/lr", "opt/more/0"}
    assert space["opt"].categories[0]["lr"].sample() is not None       # the space itself is as it was


def test_large_values_are_shared_not_copied():
    large = object()
    _, config = next(generate_variants({"data": {"it": large}, "x": tune.uniform(0, 1)}))
    assert config["data"]["it"] is large


def test_folder_names_stay_legible():
    assert format_vars({("a", "lr"): 1e-5, ("b",): 0.25, ("c",): "x/y z"}) == "lr=1e-05,b=0.2500,c=x_y_z"


class Space(tune.Experiment):
    """What a generator needs of an experiment."""

    def __init__(self, config, num_samples):
        super().__init__("space", lambda config: None, config=config, num_samples=num_samples)

    def make_trial(self, config, evaluated, trial_id, tag):
        return config


def drain(generator, space, samples):
    generator.add_configurations([Space(space, samples)])
    trials = []
    while (trial := generator.next_trial()) is not None:
        trials.append(trial)
    return trials


def test_seeds_repeat_and_a_restored_generator_goes_on(tmp_path):
    space = {"x": tune.uniform(0, 1)}
    first = drain(BasicVariantGenerator(random_state=4), space, 6)
    assert first == drain(BasicVariantGenerator(random_state=4), space, 6) and len(first) == 6
    begun = BasicVariantGenerator()
    begun.add_configurations([Space(space, 6)])
    head = [begun.next_trial() for _ in range(4)]
    begun.save_to_dir(str(tmp_path), "s")
    tail = [begun.next_trial() for _ in range(2)]
    again = BasicVariantGenerator()
    again.restore_from_dir(str(tmp_path))
    assert drain(again, space, 6) == tail and len({c["x"] for c in head + tail}) == 6


def test_points_come_first(caplog):
    space = {"x": tune.uniform(0, 7), "y": tune.choice([1, 2])}
    got = drain(BasicVariantGenerator(points_to_evaluate=[{"x": 5}, {"x": 6, "y": 9}]), space, 3)
    assert [c["x"] for c in got[:2]] == [5, 6] and got[1]["y"] == 9 and got[0]["y"] in (1, 2) and len(got) == 3
    assert "points_to_evaluate has y=9, which the search space does not have" in caplog.text and "x=" not in caplog.text
    with pytest.raises(ValueError, match="points_to_evaluate has z, which the search space does not have; there are x, y"):
        drain(BasicVariantGenerator(points_to_evaluate=[{"z": 5}]), space, 3)
    caplog.clear()
    odd = {"x": tune.uniform(0, 7), "y": tune.choice([np.zeros(2), np.ones(2)]), "z": np.ones(2)}
    assert drain(BasicVariantGenerator(points_to_evaluate=[{"x": "auto", "y": np.ones(2), "z": np.ones(2)}]), odd, 1)[0]["x"] == "auto"
    assert "points_to_evaluate has x='auto'" in caplog.text and "y=" not in caplog.text and "z=" not in caplog.text


def test_points_leave_grids_open():
    space = {"a": tune.grid_search([1, 2]), "b": tune.grid_search("xyz"), "o": tune.choice([{"k": 1}, {"k": 2}])}
    generator = BasicVariantGenerator(points_to_evaluate=[{"a": 2, "o": {"k": 1}}, {"a": 1, "b": "y"}])
    got = drain(generator, space, 3)
    assert [(c["a"], c["b"]) for c in got[:4]] == [(2, "x"), (2, "y"), (2, "z"), (1, "y")] and got[2]["o"] == {"k": 1}
    assert len(got) == generator.total_samples == 3 + 1 + 6
