"""What is under way: which trial has which process, which call was made to it, and where it starts from."""
from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.tune.execution.checkpoints import Keeper
    from raygo.tune.execution.processes import Process, Processes
    from raygo.tune.execution.table import TrialTable
    from raygo.tune.experiment.trial import Trial

__all__ = ["EXPORT", "PAUSE", "SAVE", "START", "STOP", "TRAIN", "Call", "Runs", "Saving"]

log = logging.getLogger("raygo.tune")

# Kinds of calls.
START, TRAIN, SAVE, EXPORT = "start", "train", "save", "export"
# What a trial does once it is saved; without either it goes on.
PAUSE, STOP = "pause", "stop"

# After so long a save_checkpoint is talked about.
_SLOW_SAVE_S = 10.0

_COUNTERS = (("iteration", "training_iteration"), ("time_total", "time_total_s"), ("timesteps_total", "timesteps_total"), ("episodes_total", "episodes_total"))


@dataclass
class Saving:
    """A checkpoint that a trial is making.

    Attributes
    ----------
    entry : tuple, optional
        The checkpoint with its report, once it is there.
    ended : bool
        It is there, or will never be.
    """

    trial: Trial
    metrics: dict[str, Any]
    began: float
    then: str | None = None
    entry: Any = None
    ended: bool = False
    told: bool = False
    waiters: list[Trial] = field(default_factory=list)       # trials that are to start from it

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "waiters": [], "ended": True}       # in another session nobody makes it any more


@dataclass(slots=True)
class Call:
    """A call to a trial's process."""

    kind: str
    trial: Trial
    process: Process
    saving: Saving | None = None


class Runs:
    """The trials' processes, and the calls to them.

    A trial has at most one call of a kind under way, and never more than a save with a start or a step behind it: its process takes them in turn.
    """

    def __init__(self, table: TrialTable, keeper: Keeper, processes: Processes, setup_of: Any) -> None:
        self.processes = processes
        self.started: dict[str, Process] = {}                  # by trial
        self._table, self._keeper, self._setup_of = table, keeper, setup_of
        self._calls: dict[Any, Call] = {}                      # by reference
        self._refs: dict[str, list[Any]] = {}                  # by trial
        self._savings: dict[str, Saving] = {}
        self._starting = 0
        self._origins: dict[str, tuple[Any, dict[str, Any]]] = {}      # where a trial starts from, other than its newest checkpoint
        self._reading: dict[str, Any] = {}                     # what a trial that has started may still read

    @property
    def starting(self) -> int:
        """How many processes are not there yet."""
        return self._starting

    def refs(self) -> list[Any]:
        """What to wait for."""
        return [*self._calls, *self.processes.leaving]

    def answered(self, ref: Any) -> Call | None:
        """Whose answer this is; None: nobody waits for it any more."""
        call = self._calls.pop(ref, None)
        if call is not None:
            self._refs[call.trial.trial_id].remove(ref)
        return call

    # ---- starting

    def start(self, trial: Trial) -> None:
        """Ask for a process."""
        process, ref = self.processes.start(trial, self._setup(trial))
        self._has(trial, process, ref)

    def start_in_another(self, trial: Trial, refused: Process) -> None:
        """The process that was asked cannot become another trial."""
        if trial.trial_id not in self._origins:        # else it is still to be read, by the next process
            self.was_read(trial)
        self._starting -= 1
        self.processes.leave(refused)
        process, ref = self.processes.start_fresh(trial, self._setup(trial))
        self._has(trial, process, ref)

    def _has(self, trial: Trial, process: Process, ref: Any) -> None:
        self.started[trial.trial_id] = process
        self._starting += 1
        self._table.took_process(trial)
        self._add(ref, Call(START, trial, process))

    def _add(self, ref: Any, call: Call) -> None:
        self._calls[ref] = call
        self._refs.setdefault(call.trial.trial_id, []).append(ref)

    def is_there(self, trial: Trial, process: Process) -> bool:
        """The process has answered; whether the trial starts from somewhere else than its beginning."""
        process.started = True
        self._starting -= 1
        origin = self._origins.pop(trial.trial_id, None)
        return origin is not None or bool(trial.last_result)

    def hand_over(self) -> None:
        """Idle processes hold what new ones wait for: they take over the trials of those, or end."""
        if not self.processes.any_idle or not self._starting:
            return
        for trial_id, process in list(self.started.items()):
            if process.started or not self.processes.any_idle or not process.fresh:
                continue
            if self.processes.idle_for(process.resources):
                trial = self._table.live[trial_id]
                self.take(trial, reusable=False)
                self.start(trial)
            else:
                self.processes.release_idle()

    def _setup(self, trial: Trial) -> tuple[Any, ...]:
        checkpoint, metrics = self._origins.get(trial.trial_id) or trial.latest_checkpoint_result or (None, {})
        if checkpoint is None and trial.restore_path and not trial.last_result:
            from raygo.train import Checkpoint

            checkpoint = Checkpoint(trial.restore_path)
        if checkpoint is not None:
            if trial.trial_id not in self._origins:
                self._keeper.reading(checkpoint)
            self._reading[trial.trial_id] = checkpoint
        return self._setup_of(trial, checkpoint, {key: metrics[name] for key, name in _COUNTERS if name in metrics})  # type: ignore[no-any-return]

    def start_from(self, trial: Trial, source: tuple[Any, dict[str, Any]] | Saving) -> None:
        """Where the trial starts from when it starts next: a checkpoint with its report, perhaps one that is being made."""
        if (old := self._origins.pop(trial.trial_id, None)) is not None:
            self._keeper.was_read(old[0])
        if isinstance(source, Saving) and not source.ended:
            source.waiters.append(trial)
            self._table.hold(trial)
            return
        entry = source.entry if isinstance(source, Saving) else source
        self._origins[trial.trial_id] = entry
        self._keeper.reading(entry[0])

    def was_read(self, trial: Trial) -> None:
        """The trial needs what it started from no more."""
        if (checkpoint := self._reading.pop(trial.trial_id, None)) is not None:
            self._keeper.was_read(checkpoint)

    # ---- calls

    def train(self, trial: Trial, process: Process) -> None:
        """Ask for the next report."""
        self._add(process.actor.train.remote(), Call(TRAIN, trial, process))

    def saving(self, trial: Trial) -> Saving | None:
        """The checkpoint that the trial is making."""
        return self._savings.get(trial.trial_id)

    def save(self, trial: Trial, process: Process, then: str | None = None) -> Saving:
        """Ask for a checkpoint, if none is being made."""
        saving = self._savings.get(trial.trial_id)
        if saving is None:
            saving = self._savings[trial.trial_id] = Saving(trial, dict(trial.last_result), time.monotonic())
            self._add(process.actor.save.remote(), Call(SAVE, trial, process, saving))
        saving.then = then or saving.then
        return saving

    def export(self, trial: Trial, process: Process) -> None:
        """Ask for the model in other formats."""
        self._add(process.actor.export.remote(list(trial.export_formats or ())), Call(EXPORT, trial, process))

    def saved(self, saving: Saving, entry: Any) -> None:
        """The checkpoint is there; with None, it will never be."""
        saving.ended, saving.entry = True, entry
        self._savings.pop(saving.trial.trial_id, None)
        for trial in saving.waiters:
            if self._table.live.get(trial.trial_id) is not trial:
                continue
            if (source := entry or saving.trial.latest_checkpoint_result) is not None:
                self.start_from(trial, source)
            else:
                log.warning("%s was to go on from %s, which has failed to make a checkpoint; it goes on from %s", trial, saving.trial,
                            trial.checkpoint or "the beginning")
            self._table.let_go(trial)

    def slow_saves(self) -> float | None:
        """Talk about those that take long; seconds until there may be another."""
        now = time.monotonic()
        left: list[float] = []
        for saving in self._savings.values():
            if saving.told:
                continue
            if now - saving.began < _SLOW_SAVE_S:
                left.append(saving.began + _SLOW_SAVE_S - now)
                continue
            saving.told = True
            log.warning("save_checkpoint of %s (process %s) has not returned after %.0f s. Other trials go on; this one waits for it.", saving.trial,
                        saving.trial.last_result.get("pid", "unknown"), now - saving.began)
        return min(left, default=None)

    # ---- ending

    def take(self, trial: Trial, reusable: bool, quiet: bool = False, kill: bool = False) -> None:
        """The trial has no process any more; see `Processes.done`.  One that has not answered is killed."""
        busy = self.forget_calls(trial)
        self.was_read(trial)
        process = self.started.pop(trial.trial_id, None)
        if process is None:
            return
        self._starting -= not process.started
        self._table.left_process(trial)
        if busy or kill:
            self.processes.kill(process)
        else:
            self.processes.done(process, reusable, quiet)

    def forget_calls(self, trial: Trial) -> bool:
        """Nobody waits for the trial's answers; whether there were any to come."""
        mine = self._refs.pop(trial.trial_id, [])
        for ref in mine:
            del self._calls[ref]
        if (saving := self._savings.get(trial.trial_id)) is not None:       # also one that has just failed
            self.saved(saving, None)
        return bool(mine)
