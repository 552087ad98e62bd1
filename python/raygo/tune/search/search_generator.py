"""Trials from what a Searcher proposes."""
from __future__ import annotations

import glob
import logging
import os
from typing import TYPE_CHECKING, Any

from raygo.tune.search.search_algorithm import SearchAlgorithm
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import tell
from raygo.tune.search.variant_generator import format_vars, generate_variants, has_unresolved

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["SearchGenerator"]

log = logging.getLogger("raygo.tune")


class SearchGenerator(SearchAlgorithm):
    """Asks a searcher for a configuration whenever a trial can start.

    Parameters
    ----------
    searcher : Searcher
        What proposes.
    """

    CKPT_FILE_TMPL = "search_gen_state-{}.pkl"

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"search_alg is a {type(searcher).__name__}: give a raygo.tune.search.Searcher")
        self.searcher = searcher
        self._made = 0
        self._experiment: Any = None

    @property
    def metric(self) -> str | None:
        return self.searcher.metric  # type: ignore[no-any-return]

    @property
    def total_samples(self) -> int:
        return self._experiment.num_samples if self._experiment is not None else 0

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return tell(self.searcher.set_search_properties, metric, mode, config, **spec)

    def add_configurations(self, experiments: Any) -> None:
        from raygo.tune.experiment.experiment import _convert_to_experiment_list

        experiments = _convert_to_experiment_list(experiments)
        if len(experiments) != 1 or self._experiment is not None:
            raise ValueError(f"a search algorithm takes one experiment, not {len(experiments)}: run the others on their own")
        self._experiment = experiments[0]

    def next_trial(self) -> Trial | None:
        if self.is_finished():
            return None
        if 0 <= self._experiment.num_samples <= self._made:
            self.set_finished()
            return None
        trial_id = _new_id()
        suggested = self.searcher.suggest(trial_id)
        if isinstance(suggested, str) and suggested == Searcher.FINISHED:
            self.set_finished()
            return None
        if suggested is None:
            return None
        if not isinstance(suggested, dict):
            raise TypeError(f"{type(self.searcher).__name__}.suggest returned a {type(suggested).__name__}: return a dict, None or Searcher.FINISHED")
        config = _merge(self._experiment.constants(), suggested)
        if has_unresolved(config):
            _, config = next(generate_variants(config))
        known = flat_paths(suggested)
        number = self._made
        self._made += 1
        tag = format_vars(known)
        trial: Trial = self._experiment.make_trial(config, {"/".join(map(str, path)): value for path, value in known.items()}, trial_id,
                                                   f"{number + 1}_{tag}" if tag else str(number + 1))
        return trial


    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.searcher.on_trial_complete(trial_id=trial_id, result=result, error=error)

    def get_state(self) -> dict[str, Any]:
        """How many trials there were."""
        return {"made": self._made, "finished": self._finished}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take it up."""
        self._made, self._finished = state["made"], state["finished"]

    def has_checkpoint(self, dirpath: str) -> bool:
        return bool(glob.glob(os.path.join(glob.escape(dirpath), self.searcher.CKPT_FILE_TMPL.format("*"))))

    def save_to_dir(self, dirpath: str, session_str: str = "default", **kwargs: Any) -> None:
        self.searcher.save_to_dir(dirpath, session_str)

    def restore_from_dir(self, dirpath: str) -> None:
        self.searcher.restore_from_dir(dirpath)


def _new_id() -> str:
    from raygo.tune.experiment import Trial

    return Trial.generate_id()


def flat_paths(config: dict[str, Any], prefix: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """A nested dict by path."""
    flat: dict[tuple[Any, ...], Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat.update(flat_paths(value, (*prefix, key)))
        else:
            path = (*prefix, key)
            flat[path] = value
    return flat


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
