"""Random and grid search: every configuration is drawn without looking at results."""
from __future__ import annotations

import glob
import itertools
import json
import logging
import os
import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raygo.tune.search.sample import Domain
from raygo.tune.search.search_algorithm import SearchAlgorithm
from raygo.tune.search.variant_generator import assign_value, count_variants, format_vars, generate_variants, get_value

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["BasicVariantGenerator"]

SERIALIZATION_THRESHOLD = 1e6

log = logging.getLogger("raygo.tune")


class BasicVariantGenerator(SearchAlgorithm):
    """Crosses the grids of the space, `num_samples` times, and draws from its domains each time.

    Parameters
    ----------
    points_to_evaluate : list of dict, optional
        Configurations, or parts of them, for the first trials.  Each stands for one of `num_samples`; grids that it leaves open are crossed.
    max_concurrent : int
        How many trials run at once; 0: as many as there are resources for.
    constant_grid_search : bool
        Draw once for a whole grid.
    random_state : optional
        A seed, or a NumPy generator.
    """

    CKPT_FILE_TMPL = "basic-variant-state-{}.json"

    def __init__(self, points_to_evaluate: list[dict[str, Any]] | None = None, max_concurrent: int = 0, constant_grid_search: bool = False,
                 random_state: Any = None) -> None:
        self._points = list(points_to_evaluate or [])
        self.max_concurrent = max_concurrent
        self._constant_grid_search = constant_grid_search
        self._random_state = random_state
        self._seed: int | None = random_state if isinstance(random_state, int) else None
        self._uuid = uuid.uuid4().hex[:5]
        self._made = 0                     # trials made, also before a restart
        self._live: set[str] = set()
        self._experiments: list[Any] = []
        self._variants: Iterator[tuple[Any, dict[str, Any], dict[Any, Any]]] | None = None

    @property
    def total_samples(self) -> int:
        return sum(self._count(e) for e in self._experiments)

    def _count(self, experiment: Any) -> int:
        if experiment.num_samples == -1:
            return sys.maxsize
        of_points = sum(count_variants(_at_point(experiment, point)[0]) for point in self._points)
        return of_points + max(0, experiment.num_samples - len(self._points)) * count_variants(experiment.config)

    def add_configurations(self, experiments: Any) -> None:
        from raygo.tune.experiment.experiment import _convert_to_experiment_list
        from raygo.tune.search.sample import generator

        if self._random_state is None and self._seed is None:       # remembered from the start, so that a restored search draws the same again
            self._seed = int(generator(None).randint(2**31 - 1))
        added = _convert_to_experiment_list(experiments)
        for experiment in added:
            for point in self._points:           # what has no place fails here
                _check(experiment.config, _at_point(experiment, point)[1])
        self._experiments.extend(added)

    def next_trial(self) -> Trial | None:
        if self.is_finished() or (self.max_concurrent > 0 and len(self._live) >= self.max_concurrent):
            return None
        if self._variants is None:
            self.made_before()
        assert self._variants is not None
        found = next(self._variants, None)
        if found is None:
            self.set_finished()
            return None
        experiment, config, known = found
        number = self._made
        self._made += 1
        trial_id = f"{self._uuid}_{number:05d}"
        self._live.add(trial_id)
        tag = format_vars(known)
        trial: Trial = experiment.make_trial(config, {"/".join(map(str, path)): value for path, value in known.items()}, trial_id,
                                             f"{number}_{tag}" if tag else str(number))
        return trial

    def made_before(self) -> list[dict[str, Any]]:
        """The configurations of the trials that there were before a restart, drawn again from the space as it is now."""
        self._variants = self._all_variants()
        return [config for _, config, _ in itertools.islice(self._variants, self._made)]

    def _all_variants(self) -> Iterator[tuple[Any, dict[str, Any], dict[Any, Any]]]:
        from raygo.tune.search.sample import generator

        random = generator(self._seed if self._seed is not None else self._random_state)
        for experiment in self._experiments:
            rounds = experiment.num_samples if experiment.num_samples != -1 else sys.maxsize
            for point in self._points:
                space, given = _at_point(experiment, point)
                for known, config in generate_variants(space, self._constant_grid_search, random):
                    yield experiment, config, {**given, **known}
            done = len(self._points)
            while done < rounds:
                for known, config in generate_variants(experiment.config, self._constant_grid_search, random):
                    yield experiment, config, known
                done += 1

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._live.discard(trial_id)

    def get_state(self) -> dict[str, Any]:
        """What a restored search needs to go on where this one is."""
        return {"seed": self._seed, "uuid": self._uuid, "made": self._made, "finished": self._finished}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self._seed, self._uuid, self._made, self._finished = state["seed"], state["uuid"], state["made"], state["finished"]

    def has_checkpoint(self, dirpath: str) -> bool:
        return bool(self._files(dirpath))

    def _files(self, folder: str) -> list[str]:
        return glob.glob(os.path.join(glob.escape(folder), self.CKPT_FILE_TMPL.format("*")))

    def save_to_dir(self, dirpath: str, session_str: str = "default", **kwargs: Any) -> None:
        path = os.path.join(dirpath, self.CKPT_FILE_TMPL.format(session_str))
        with open(path + ".tmp", "w") as file:
            json.dump(self.get_state(), file)
        os.replace(path + ".tmp", path)

    def restore_from_dir(self, dirpath: str) -> None:
        files = self._files(dirpath)
        if not files:
            raise RuntimeError(f"no state of a search in {dirpath}")
        with open(max(files, key=os.path.getmtime)) as file:
            self.set_state(json.load(file))


def _at_point(experiment: Any, point: dict[str, Any]) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The space with a point's values in it, and these by path."""
    space = experiment.space_copy()
    given = dict(_paths(point, space, ()))
    for path, value in given.items():
        assign_value(space, path, value)
    return space, given


def _check(space: dict[str, Any], given: dict[Any, Any]) -> None:
    for path, value in given.items():
        place = get_value(space, path)
        grid = isinstance(place, dict) and place.get("grid_search")
        try:
            known = value in grid if grid else place.is_valid(value) if isinstance(place, Domain) else bool(place == value)
        except TypeError:           # text in a range of numbers
            known = False
        except (ValueError, RuntimeError):       # arrays and tensors, which are not equal or different as a whole
            known = True
        if not known:
            log.warning("points_to_evaluate has %s=%r, which the search space does not have: %s", "/".join(map(str, path)), value, place)


def _paths(point: dict[str, Any], space: dict[Any, Any], prefix: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, value in point.items():
        path: tuple[Any, ...] = (key,) if key in space or not isinstance(key, str) else tuple(key.split("/"))
        try:
            place = get_value(space, path)
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"points_to_evaluate has {'/'.join(map(str, (*prefix, *path)))}, which the search space does not have; there are "
                             f"{', '.join(map(str, space))}") from None
        if isinstance(value, dict) and isinstance(place, dict) and "grid_search" not in place:
            yield from _paths(value, place, (*prefix, *path))
        else:
            yield (*prefix, *path), value
