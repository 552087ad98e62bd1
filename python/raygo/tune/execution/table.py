"""The trials of a search, by what the driver asks about them at every event."""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from raygo.tune.experiment.trial import Trial

__all__ = ["TrialTable"]


class TrialTable:
    """All trials, those that have not ended, and those that could start.

    A trial could start if it has not ended, no process is its own, and nothing holds it back.  These are kept in order as things change, so that
    an event costs the same however many trials there are.

    Parameters
    ----------
    trials : iterable of Trial
        Of an earlier session.

    Attributes
    ----------
    all : list of Trial
        In the order in which they came.
    live : dict of str to Trial
        Those that have not ended, by id, in the same order.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self.all: list[Trial] = []
        self.live: dict[str, Trial] = {}
        self._number: dict[str, int] = {}
        self._busy: set[str] = set()
        self._held: set[str] = set()
        self._idle: list[int] = []                # numbers of those that could start, ascending
        self._startable: list[Trial] | None = []  # the same as trials; None after a change
        for trial in trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """One more."""
        self._number[trial.trial_id] = len(self.all)
        self.all.append(trial)
        if not trial.is_finished():
            self.live[trial.trial_id] = trial
            self._changed(trial)

    def get(self, trial_id: str) -> Trial | None:
        """A trial by its id."""
        number = self._number.get(trial_id)
        return None if number is None else self.all[number]

    def took_process(self, trial: Trial) -> None:
        """A process is the trial's."""
        self._busy.add(trial.trial_id)
        self._changed(trial)

    def left_process(self, trial: Trial) -> None:
        """It is not any more."""
        self._busy.discard(trial.trial_id)
        self._changed(trial)

    def hold(self, trial: Trial) -> None:
        """What the trial starts from is not there yet."""
        self._held.add(trial.trial_id)
        self._changed(trial)

    def let_go(self, trial: Trial) -> None:
        """It is."""
        self._held.discard(trial.trial_id)
        self._changed(trial)

    def ended(self, trial: Trial) -> None:
        """The trial has come to its end."""
        self.live.pop(trial.trial_id, None)
        self._held.discard(trial.trial_id)
        self._changed(trial)

    def startable(self) -> list[Trial]:
        """Those that could start, in the order in which they came; not to be changed."""
        if self._startable is None:
            self._startable = [self.all[number] for number in self._idle]
        return self._startable

    def has_pending(self, count: int) -> bool:
        """Whether so many that could start are PENDING."""
        if len(self._idle) < count:
            return False
        return sum(trial.status == Trial.PENDING for trial in self.startable()) >= count

    def _changed(self, trial: Trial) -> None:
        number, id_ = self._number[trial.trial_id], trial.trial_id
        wanted = id_ in self.live and id_ not in self._busy and id_ not in self._held
        at = bisect_left(self._idle, number)
        known = at < len(self._idle) and self._idle[at] == number
        if wanted == known:
            return
        if wanted:
            insort(self._idle, number)
        else:
            del self._idle[at]
        self._startable = None
