"""Starts and ends the trials' processes."""
from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import raygo
from raygo.train._preload import Preloading
from raygo.tune.execution.actor import Common, TrialActor
from raygo.tune.execution.preload import modules_of
from raygo.util.placement_group import remove_placement_group
from raygo.util.scheduling_strategies import PlacementGroupSchedulingStrategy

if TYPE_CHECKING:
    from raygo.tune.experiment.trial import Trial

__all__ = ["Process", "Processes"]

# How long a process that was asked to end may take.
FAREWELL_ENV = "TUNE_FORCE_TRIAL_CLEANUP_S"
_FAREWELL_S = 15.0
# What a trial's process imports before it can serve; it is forked from one that has it.
_MODULES = ("raygo.tune.execution.actor", "raygo.tune.trainable.function_trainable", "raygo.tune.context", "raygo.train")


@dataclass
class Process:
    """An actor and what it holds."""

    actor: Any
    resources: Any
    group: Any = None
    started: bool = False
    fresh: bool = True          # no trial has run in it before


class Processes:
    """The trials' actors.

    Parameters
    ----------
    common : Common
        What they are all told.
    reuse : bool
        Give a process that has ended a trial well to the next one with the same resources.
    """

    def __init__(self, common: Common, reuse: bool) -> None:
        self._common = raygo.put(common)
        self._reuse = reuse
        self._idle: list[Process] = []
        self._leaving: dict[Any, tuple[Process, float]] = {}      # ref of stop() -> until when
        self._classes: dict[Any, Any] = {}
        self._farewell = float(os.environ.get(FAREWELL_ENV) or _FAREWELL_S)
        # It goes on while the driver prepares the search.
        self._preloading: Preloading | None = Preloading((*_MODULES, *modules_of(common.trainable)))

    def start(self, trial: Trial, told: tuple[Any, ...]) -> tuple[Process, Any]:
        """A process for a trial; the reference says when it is there."""
        wanted = trial.placement_group_factory
        for i, process in enumerate(self._idle):
            if process.resources == wanted:
                del self._idle[i]
                process.fresh, process.started = False, False
                return process, process.actor.reset.remote(told)
        if self._idle:                     # what they hold may be what this one waits for
            self.leave(self._idle.pop(0))
        return self.start_fresh(trial, told)

    def start_fresh(self, trial: Trial, told: tuple[Any, ...]) -> tuple[Process, Any]:
        """A new process."""
        if self._preloading is not None:
            self._preloading.wait()
            self._preloading = None
        wanted: Any = trial.placement_group_factory
        process = Process(None, wanted)
        make = self._class(wanted)
        if len(wanted.bundles) > 1 or wanted.head_bundle_is_empty:       # the trial starts what the other bundles are for
            process.group = wanted()
            make = make.options(scheduling_strategy=PlacementGroupSchedulingStrategy(
                process.group, placement_group_bundle_index=-1 if wanted.head_bundle_is_empty else 0, placement_group_capture_child_tasks=True))
        process.actor = make.remote()
        return process, process.actor.start.remote(self._common, told)

    def _class(self, wanted: Any) -> Any:
        made = self._classes.get(wanted)
        if made is None:
            needs = {} if wanted.head_bundle_is_empty else dict(wanted.bundles[0])
            options: dict[str, Any] = {"num_cpus": needs.pop("CPU", 0), "num_gpus": needs.pop("GPU", 0), "max_restarts": 0}
            if memory := needs.pop("memory", None):
                options["memory"] = memory
            made = self._classes[wanted] = raygo.remote(**options, resources=needs)(TrialActor)
        return made

    def done(self, process: Process, reusable: bool, quiet: bool) -> None:
        """A trial is over.

        Parameters
        ----------
        reusable : bool
            The process is as it should be.
        quiet : bool
            Nothing of the trial runs in it, so there is nothing to stop.
        """
        if reusable and self._reuse and process.started:
            self._idle.append(process)
        elif not process.started:
            self.kill(process)
        elif quiet:
            self._free(process)
        else:
            self.leave(process)

    def leave(self, process: Process) -> None:
        """Ask a process to stop its trial, and let it end."""
        self._leaving[process.actor.stop.remote()] = (process, time.monotonic() + self._farewell)

    def left(self, ref: Any) -> bool:
        """Whether the reference is that of a process that was leaving, which then has."""
        found = self._leaving.pop(ref, None)
        if found is None:
            return False
        try:
            raygo.get(ref)
        except Exception:
            self.kill(found[0])           # it died, or its clean-up raised: both end it
        else:
            self._free(found[0])
        return True

    @property
    def any_idle(self) -> bool:
        """Whether a process waits for a trial."""
        return bool(self._idle)

    def idle_for(self, resources: Any) -> bool:
        """Whether one with these resources does."""
        return any(process.resources == resources for process in self._idle)

    @property
    def leaving(self) -> list[Any]:
        """What to wait for."""
        return list(self._leaving)

    def overdue(self) -> float | None:
        """End those that take too long; seconds until the next one does."""
        now = time.monotonic()
        for ref, (process, until) in list(self._leaving.items()):
            if until <= now:
                del self._leaving[ref]
                self.kill(process)
        return min((until - now for _, until in self._leaving.values()), default=None)

    def kill(self, process: Process) -> None:
        """End a process at once."""
        if raygo.is_initialized():
            raygo.kill(process.actor)
        self._free(process)

    def _free(self, process: Process) -> None:
        process.actor = None              # without a handle an actor ends when it has nothing to do
        if process.group is not None and raygo.is_initialized():
            remove_placement_group(process.group)
            process.group = None

    def release_idle(self) -> None:
        """No more trials will come."""
        while self._idle:
            self.leave(self._idle.pop())

    def close(self) -> None:
        """End them all, those that are leaving after their time."""
        self.release_idle()
        while self._leaving:
            left = self.overdue()
            if left is None:
                break
            ready, _ = raygo.wait(self.leaving, num_returns=1, timeout=max(0.0, left))
            for ref in ready:
                self.left(ref)
