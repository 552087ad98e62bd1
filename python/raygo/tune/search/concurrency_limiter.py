"""A limit on how many proposals of a searcher are being tried."""
from __future__ import annotations

from typing import Any

from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import tell

__all__ = ["ConcurrencyLimiter"]


class ConcurrencyLimiter(Searcher):
    """Lets a searcher propose only while fewer than `max_concurrent` of its trials are unfinished.

    Parameters
    ----------
    searcher : Searcher
        What proposes.
    max_concurrent : int
        How many trials at once.
    batch : bool
        Wait for all of them before proposing again, and tell the searcher about them together.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent is {max_concurrent!r}: give a whole number of 1 or more")
        self.searcher = searcher
        self.max_concurrent = max_concurrent
        self.batch = batch
        self._live: set[str] = set()
        self._ended: dict[str, tuple[dict[str, Any] | None, bool]] = {}
        super().__init__(searcher.metric, searcher.mode)
        self._limit_concurrency = not searcher.set_max_concurrency(max_concurrent)       # else the searcher sees to it

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return True

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return tell(self.searcher.set_search_properties, metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Any:
        if self._limit_concurrency and len(self._live) >= self.max_concurrent:
            return None
        suggested = self.searcher.suggest(trial_id)
        if suggested not in (None, Searcher.FINISHED):
            self._live.add(trial_id)
        return suggested

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self._live:
            return
        if not self.batch or not self._limit_concurrency:
            self._live.discard(trial_id)
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        self._ended[trial_id] = (result, error)
        if len(self._ended) == self.max_concurrent or self._live <= set(self._ended):
            for one, (last, failed) in self._ended.items():
                self.searcher.on_trial_complete(one, result=last, error=failed)
            self._ended.clear()
            self._live.clear()

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, error: bool = False, pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def get_state(self) -> dict[str, Any]:
        return {"live": set(self._live), "ended": dict(self._ended), "searcher": self.searcher.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._live, self._ended = set(state["live"]), dict(state["ended"])
        self.searcher.set_state(state["searcher"])
