"""A scheduler's state on disk.

It is the scheduler as it is, pickled, with each trial that it refers to as that trial's id.  The experiment's log is newer than it by some
seconds; what has happened since is told to the scheduler when it is read.
"""
from __future__ import annotations

import glob
import io
import logging
import os
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raygo.tune.experiment.trial import Trial
from raygo.tune.utils.dicts import flatten_dict

if TYPE_CHECKING:
    from raygo.tune.schedulers.trial_scheduler import TrialScheduler

__all__ = ["restore_scheduler", "save_scheduler", "tell_scheduler"]

log = logging.getLogger("raygo.tune")

_FILE = "scheduler-state-{}.pkl"


def save_scheduler(scheduler: TrialScheduler, trials: Sequence[Trial], folder: str, session: str) -> None:
    """Write the state, in the place of that of the same session."""
    if not _has_state(scheduler):
        return
    from raygo import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def persistent_id(self, value: Any) -> str | None:
            return value.trial_id if isinstance(value, Trial) else None

    data = io.BytesIO()
    Pickler(data).dump((type(scheduler).__qualname__, {t.trial_id: t.status for t in trials}, scheduler))
    path = os.path.join(folder, _FILE.format(session))
    with open(path + ".tmp", "wb") as file:
        file.write(data.getbuffer())
    os.replace(path + ".tmp", path)


def restore_scheduler(scheduler: TrialScheduler, trials: Sequence[Trial], folder: str) -> dict[str, str] | None:
    """Take the newest state up.

    Returns
    -------
    dict or None
        The trials that the scheduler knew, with what they were doing; None: there is no state that goes with these trials, and the scheduler is as
        it was.
    """
    files = glob.glob(os.path.join(glob.escape(folder), _FILE.format("*")))
    if not files:
        return None
    by_id = {t.trial_id: t for t in trials}

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, trial_id: Any) -> Trial:
            return by_id[trial_id]

    newest = max(files, key=os.path.getmtime)
    try:
        with open(newest, "rb") as file:
            kind, known, saved = Unpickler(file).load()
    except KeyError:                     # a trial is begun afresh, under another id
        return None
    except Exception as error:           # what is pickled names code of users
        log.warning("the scheduler begins afresh, as %s cannot be read: %s: %s", newest, type(error).__name__, error)
        return None
    if kind != type(scheduler).__qualname__ or not by_id.keys() >= known.keys():
        return None
    scheduler.__dict__.update(saved.__dict__)
    return known  # type: ignore[no-any-return]


def tell_scheduler(scheduler: TrialScheduler, controller: Any, trials: Sequence[Trial], known: dict[str, str] | None) -> None:
    """Tell of trials of an earlier session what the scheduler does not know of them."""
    ends = (Trial.TERMINATED, Trial.ERROR)
    for trial in trials:
        before = (known or {}).get(trial.trial_id)
        if before is None or (before in ends and not trial.is_finished()):
            scheduler.on_trial_add(controller, trial)
        if before in ends:
            continue
        if trial.status == Trial.TERMINATED:       # what is compared with others' results still counts
            scheduler.on_trial_complete(controller, trial, flatten_dict(trial.last_result))
        elif trial.status == Trial.ERROR:
            scheduler.on_trial_error(controller, trial)


def _has_state(scheduler: TrialScheduler) -> bool:
    from raygo.tune.schedulers.trial_scheduler import FIFOScheduler

    return type(scheduler) is not FIFOScheduler
