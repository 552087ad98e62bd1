"""Several trials of each proposal, told to the searcher as their mean."""
from __future__ import annotations

import math
from typing import Any

from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import tell

__all__ = ["Repeater", "TRIAL_INDEX"]

# Where a trial finds which repetition it is.
TRIAL_INDEX = "__trial_index__"


class Repeater(Searcher):
    """Tries each configuration `repeat` times, for trainings that chance has a part in.

    Parameters
    ----------
    searcher : Searcher
        What proposes; it learns the mean of the repetitions.
    repeat : int
        How often.
    set_index : bool
        Put the number of the repetition into the config, as `TRIAL_INDEX`.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        if not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"repeat is {repeat!r}: give a whole number of 1 or more")
        self.searcher = searcher
        self.repeat = repeat
        self._set_index = set_index
        self._groups: dict[str, _Group] = {}       # by the id that the searcher knows
        self._group_of: dict[str, str] = {}
        self._open: str | None = None
        super().__init__(searcher.metric, searcher.mode)

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return tell(self.searcher.set_search_properties, metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Any:
        if self._open is None:
            config = self.searcher.suggest(trial_id)
            if config in (None, Searcher.FINISHED):
                return config
            self._open = trial_id
            self._groups[trial_id] = _Group(config)
        group = self._groups[self._open]
        self._group_of[trial_id] = self._open
        index = group.begun
        group.begun += 1
        if group.begun == self.repeat:
            self._open = None
        return {**group.config, TRIAL_INDEX: index} if self._set_index else dict(group.config)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False, **kwargs: Any) -> None:
        first = self._group_of.pop(trial_id, None)
        if first is None:
            return
        group = self._groups[first]
        value = self.searcher_value(result)
        if value is not None and not math.isnan(value):
            group.values.append(value)
        group.ended += 1
        if group.ended < self.repeat:
            return
        del self._groups[first]
        mean = sum(group.values) / len(group.values) if group.values else math.nan
        self.searcher.on_trial_complete(first, result={str(self.metric): mean}, error=not group.values)

    def searcher_value(self, result: dict[str, Any] | None) -> float | None:
        """The metric of a result."""
        from raygo.train._result import dig

        value = dig(result, self.metric) if result and self.metric else None
        return None if value is None else float(value)

    def get_state(self) -> dict[str, Any]:
        return {"groups": self._groups, "group_of": self._group_of, "open": self._open, "searcher": self.searcher.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._groups, self._group_of, self._open = state["groups"], state["group_of"], state["open"]
        self.searcher.set_state(state["searcher"])


class _Group:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.begun = self.ended = 0
        self.values: list[float] = []
