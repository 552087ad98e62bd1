"""What the experiment's log does not have, written down now and then."""
from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from raygo.tune.execution.schedule import save_scheduler

if TYPE_CHECKING:
    from raygo.tune.callback import CallbackList
    from raygo.tune.execution.state import ExperimentState
    from raygo.tune.execution.storage import ExperimentStorage
    from raygo.tune.schedulers.trial_scheduler import TrialScheduler
    from raygo.tune.search.search_algorithm import SearchAlgorithm

__all__ = ["Autosave"]

log = logging.getLogger("raygo.tune")

SAVE_PERIOD_ENV = "TUNE_GLOBAL_CHECKPOINT_S"
_SAVE_PERIOD_S = 10.0


class Autosave:
    """Saves searcher, scheduler and callbacks, and brings a storage elsewhere up to date.

    Attributes
    ----------
    dirty : bool
        There is something to save.
    """

    def __init__(self, storage: ExperimentStorage, state: ExperimentState, search_alg: SearchAlgorithm, scheduler: TrialScheduler,
                 callbacks: CallbackList) -> None:
        self.dirty = False
        self._storage, self._state = storage, state
        self._search_alg, self._scheduler, self._callbacks = search_alg, scheduler, callbacks
        self._period = float(os.environ.get(SAVE_PERIOD_ENV) or _SAVE_PERIOD_S)
        self._saved = time.monotonic()
        self._scheduler_fails = False

    def due_in(self) -> float | None:
        """Seconds until the next time; None: nothing is to be saved."""
        if not self.dirty and self._storage.is_local:
            return None
        return self._period - (time.monotonic() - self._saved)

    def tick(self) -> None:
        """Save if it is time."""
        left = self.due_in()
        if left is not None and left <= 0:
            began = time.monotonic()
            self.save()
            # Never more than a twentieth of the time.
            self._period = max(self._period, 20 * (time.monotonic() - began))

    def save(self) -> None:
        """Save now."""
        folder, session = self._storage.local_path, self._state.session
        self._search_alg.save_to_dir(folder, session_str=session)
        self._callbacks.save_to_dir(folder, session_str=session)
        self._save_scheduler(folder, session)
        if not self._storage.is_local:
            self._state.snapshot()
            self._storage.changed()
        self.dirty = False
        self._saved = time.monotonic()

    def _save_scheduler(self, folder: str, session: str) -> Any:
        if self._scheduler_fails:
            return
        try:
            save_scheduler(self._scheduler, self._state.trials, folder, session)
        except OSError:
            raise
        except Exception as error:          # pickling runs code of users
            self._scheduler_fails = True
            log.warning("the state of %s cannot be pickled (%s: %s): a restored search tells it of the trials again, and it begins afresh otherwise",
                        type(self._scheduler).__name__, type(error).__name__, error)
