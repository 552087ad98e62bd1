"""How a search goes about its trials."""
from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ResumeConfig", "TuneConfig"]


@dataclass
class TuneConfig:
    """How a search goes about its trials.

    Parameters
    ----------
    mode : {"max", "min"}, optional
        Whether large or small values of `metric` are good.
    metric : str, optional
        What trials are compared by.
    search_alg : Searcher or SearchAlgorithm, optional
        What proposes configurations; grids and random values by default.
    scheduler : TrialScheduler, optional
        Which trials go on; all of them by default.
    num_samples : int
        How many times the space is drawn from; -1: until something stops the search.
    max_concurrent_trials : int, optional
        How many trials at once; as many as there are resources for by default.
    time_budget_s : float or datetime.timedelta, optional
        After which the search is stopped.
    reuse_actors : bool
        Give a trial's process to the next one.
    trial_name_creator, trial_dirname_creator : callable, optional
        Make a name of a Trial.
    """

    mode: str | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: int | float | datetime.timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: Any = "DEPRECATED"

    def __post_init__(self) -> None:
        if self.mode not in (None, "max", "min"):
            raise ValueError(f"TuneConfig: mode is {self.mode!r}: give 'max' or 'min'")
        if isinstance(self.num_samples, bool) or not isinstance(self.num_samples, int) or (self.num_samples < 1 and self.num_samples != -1):
            raise ValueError(f"TuneConfig: num_samples is {self.num_samples!r}: give a whole number of 1 or more, or -1 for no end")
        most = self.max_concurrent_trials
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise ValueError(f"TuneConfig: max_concurrent_trials is {most!r}: give a whole number of 1 or more")
        if self.chdir_to_trial_dir != "DEPRECATED":
            raise ValueError("TuneConfig(chdir_to_trial_dir=...) is the environment variable RAY_CHDIR_TO_TRIAL_DIR now: 0 or 1")


@dataclass
class ResumeConfig:
    """What a restored search does with its trials.

    Parameters
    ----------
    finished, unfinished, errored : ResumeType
        Skip them, resume them from their newest checkpoint, or restart them.
    """

    class ResumeType(enum.Enum):
        """What becomes of a trial."""

        RESUME = "resume"
        RESTART = "restart"
        SKIP = "skip"

    finished: ResumeType = ResumeType.SKIP
    unfinished: ResumeType = ResumeType.RESUME
    errored: ResumeType = ResumeType.SKIP
