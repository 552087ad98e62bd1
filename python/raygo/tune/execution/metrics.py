"""Whether a report has what a search is about."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from raygo.tune.result import AUTO_RESULT_KEYS, CONFIG_PREFIX, DEFAULT_METRIC, DONE

if TYPE_CHECKING:
    from raygo.tune.experiment.trial import Trial
    from raygo.tune.schedulers.trial_scheduler import TrialScheduler
    from raygo.tune.search.search_algorithm import SearchAlgorithm

__all__ = ["unreported"]


def unreported(trial: Trial, result: dict[str, Any], search_alg: SearchAlgorithm, scheduler: TrialScheduler) -> str | None:
    """What is wrong with a flat report that lacks the metric which searcher or scheduler compare by; None: nothing."""
    for who, metric in ((search_alg, search_alg.metric), (scheduler, scheduler.metric)):
        if not metric:
            continue
        for name in metric if isinstance(metric, (list, tuple)) else [metric]:
            if name and name != DEFAULT_METRIC and result.get(name) is None and os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING", "0") != "1":
                shown = ", ".join(sorted(str(key) for key in result if key not in AUTO_RESULT_KEYS and not str(key).startswith(f"{CONFIG_PREFIX}/")))
                if result.get(DONE) and not shown:       # only that it has ended
                    return None
                asker = type(getattr(who, "searcher", who)).__name__
                return (f"Trial returned a result which did not include the specified metric(s) `{name}` that "
                        f"{'TuneConfig' if asker == 'FIFOScheduler' else asker} expects. {trial} reported {shown or 'no metrics of its own'}. "
                        f"Report {name!r}, or name another metric; TUNE_DISABLE_STRICT_METRIC_CHECKING=1 lets such results pass.")
    return None
