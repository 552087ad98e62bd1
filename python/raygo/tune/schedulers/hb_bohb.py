"""HyperBand as BOHB needs it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo.tune.schedulers.hyperband import HyperBandScheduler, _Bracket

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController
    from raygo.tune.experiment.trial import Trial

__all__ = ["HyperBandForBOHB"]


class HyperBandForBOHB(HyperBandScheduler):
    """Tells the searcher `TuneBOHB`, in ``result["hyperband_info"]``, for which budget a result is.

    A bracket does not halve before it is full, as BOHB fills it with proposals of one budget.  Parameters are those of HyperBandScheduler.
    """

    def _annotate(self, bracket: _Bracket, trial: Trial, result: dict[str, Any]) -> None:
        trial.last_result["hyperband_info"] = result["hyperband_info"] = {"budget": bracket.milestone}

    def _ready(self, bracket: _Bracket) -> bool:
        return bracket.round_done and (bracket.filled or bracket.progress >= 1 or self._no_more)

    _no_more = False

    def choose_trial_to_run(self, tune_controller: TuneController, allow_recurse: bool = True) -> Trial | None:
        chosen = super().choose_trial_to_run(tune_controller)
        if chosen is not None or not allow_recurse or tune_controller.has_running_trials():
            return chosen
        # Nothing runs and nothing will: brackets halve as they are.
        self._no_more = True
        try:
            for bracket in [b for band in self._bands for b in band if b.trials and self._ready(b)]:
                self._process(tune_controller, bracket, None)
        finally:
            self._no_more = False
        return self.choose_trial_to_run(tune_controller, allow_recurse=False)
