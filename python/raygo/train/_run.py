"""The driver's side of a run: starts the workers, gathers what they report, starts again after failures.

Ranks report on their own.  Report k is complete when every rank that is still training has made it; then its files become a checkpoint
and its metrics (rank 0's) a line of the results.  A rank that lags more than a patience behind is named in a warning and no longer
waited for, as a loop may well report on one rank only.
"""
from __future__ import annotations

import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import raygo
from raygo._calls import call
from raygo.exceptions import RayError, RayTaskError
from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import DataConfig, materialize
from raygo.train._result import Result, dig, frame
from raygo.train._result_files import ResultFiles
from raygo.train._session import Report
from raygo.train._settings import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from raygo.train._storage import StorageContext, checkpoint_name
from raygo.train._worker_group import WorkerGroup, check_feasible
from raygo.train.backend import Backend, BackendConfig
from raygo.train.constants import CHECKPOINT_DIR_NAME, DEFAULT_REPORT_PATIENCE_S, REPORT_PATIENCE_S_ENV, TIME_TOTAL_S
from raygo.train.error import TrainingFailedError

# After the first error the others that follow from it are waited for so long, to tell the cause from its consequences.
_ERRORS_SETTLE_S = 1.0
# What ranks say when another one has gone.
_CONSEQUENCES = ("connection closed by peer", "connection reset by peer", "gloo", "nccl", "broken pipe", "socket timeout")


@dataclass
class Pending:
    """A report that some ranks have made."""

    since: float
    said: dict[int, Report] = field(default_factory=dict)


class KeptCheckpoints:
    """The checkpoints on disk, pruned by the CheckpointConfig."""

    def __init__(self, config: CheckpointConfig, storage: StorageContext) -> None:
        self.config = config
        self.storage = storage
        self.kept: list[tuple[Checkpoint, dict[str, Any]]] = []
        self.made = 0

    @property
    def newest(self) -> Checkpoint | None:
        return self.kept[-1][0] if self.kept else None

    def next_name(self) -> str:
        name = checkpoint_name(self.made)
        self.made += 1
        return name

    def add(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self.kept.append((checkpoint, metrics))
        most = self.config.num_to_keep
        while most is not None and len(self.kept) > most and (worst := self._worst(most)) is not None:
            gone, _ = self.kept.pop(worst)
            name = gone.path.rpartition("/")[2]
            if gone.path == self.storage.build_checkpoint_path_from_name(name):
                self.storage.delete_checkpoint(name)
            else:
                gone._files.delete(gone.path)

    def _worst(self, most: int) -> int | None:
        """Which to drop: never the newest, never one of the best `most`."""
        attribute = self.config.checkpoint_score_attribute
        if attribute is None:
            return 0
        sign = 1 if self.config.checkpoint_score_order == "max" else -1
        scores: list[tuple[bool, float]] = []
        for _, metrics in self.kept:
            value = dig(metrics, attribute)
            # No score, or NaN, is worse than any score.
            good = isinstance(value, (int, float)) and value == value
            scores.append((good, sign * float(value) if good else 0.0))
        ranked = sorted(range(len(scores)), key=lambda i: scores[i], reverse=True)
        droppable = [i for i in ranked[most:] if i != len(self.kept) - 1]
        return droppable[-1] if droppable else None


class Run:
    """One call of `fit`; also what callbacks get as `run_context`."""

    def __init__(self, *, trainer_name: str, train_loop: Callable[..., Any], config: dict[str, Any] | None, scaling: ScalingConfig,
                 run_config: RunConfig, backend_config: BackendConfig, metadata: dict[str, Any] | None, resume_from: Checkpoint | None,
                 datasets: dict[str, Any] | None = None, dataset_config: DataConfig | None = None) -> None:
        self.train_loop = train_loop
        self.train_loop_config = config
        self.scaling_config = scaling
        self.run_config = run_config
        self.backend_config = backend_config
        self.metadata = dict(metadata or {})
        self.start_from = resume_from
        self.datasets = dict(datasets or {})
        self.dataset_config = dataset_config or DataConfig()
        check_feasible([scaling._worker_bundle] * scaling.num_workers)      # before there is a folder of a run that cannot be
        self.storage = _new_run(run_config, trainer_name)
        self.files = ResultFiles(self.storage, config or {})
        self.checkpoints = KeptCheckpoints(run_config.checkpoint_config or CheckpointConfig(), self.storage)
        self.history: list[dict[str, Any]] = []
        self.begin = self.last = time.time()
        self.restored_at = 0                       # reports made before the last restart
        self.patience = float(os.environ.get(REPORT_PATIENCE_S_ENV, DEFAULT_REPORT_PATIENCE_S))
        self.warned: set[int] = set()

    def fit(self) -> Result:
        failures = self.run_config.failure_config or FailureConfig()
        failed = 0
        try:
            self.datasets = materialize(self.datasets)
            while True:
                try:
                    value = self._attempt()
                except WorkersFailed as failure:
                    for callback in self.run_config.callbacks or []:
                        callback.after_exception(self, failure.errors)
                    failed += 1
                    if failures.max_failures >= 0 and failed > failures.max_failures:
                        raise TrainingFailedError(failure.text(self.storage.trial_fs_path, failed)) from failure.cause
                    warnings.warn(f"{failure.first_line()} Starting again from {self.checkpoints.newest or 'the beginning'} "
                                  f"(failure {failed} of {failures.max_failures if failures.max_failures >= 0 else 'any number'}).", stacklevel=3)
                    continue
                return Result(self.history[-1] if self.history else {}, self.checkpoints.newest, None, self.storage.trial_fs_path,
                              frame(self.history), list(self.checkpoints.kept),
                              None if self.storage.files.local else self.storage.storage_filesystem, value)
        finally:
            self.storage.discard()
            self.files.close()

    def _attempt(self) -> Any:
        """Trains once from the newest checkpoint; what rank 0's function returned."""
        backend = self.backend_config.backend_cls()
        self.restored_at = len(self.history)
        if self.backend_config.preload and not self.run_config.worker_runtime_env:
            call("modules.preload", {"modules": list(self.backend_config.preload)})
        group = WorkerGroup(self.scaling_config, self.run_config.worker_runtime_env)
        try:
            first = self._start(group, backend)
            loop = raygo.put(self.train_loop)
            runs = [worker.actor.run.remote(loop, self.train_loop_config, self.backend_config.train_func_context) for worker in group.workers]
            values = Gather(self, group, runs, first).run()
            backend.on_shutdown(group, self.backend_config)
            return values[0]
        finally:
            group.shutdown()

    def _start(self, group: WorkerGroup, backend: Backend) -> int:
        """Makes the workers a group; the number of their first report."""
        try:
            places = group.places(self.scaling_config.as_placement_group_factory(), self.metadata)
            if self.datasets:
                nodes = [worker.metadata.node_id for worker in group.workers]
                shards = self.dataset_config.configure(self.datasets, len(group), [worker.actor for worker in group.workers], nodes)
                for place, shard in zip(places, shards, strict=True):
                    place.shards = shard
            start = self.checkpoints.newest or self.start_from
            first = self._first_report()
            raygo.get([worker.actor.set_up.remote(place, self.storage, start, first, _environment(place))
                       for worker, place in zip(group.workers, places, strict=True)])
            backend.on_start(group, self.backend_config)
            backend.on_training_start(group, self.backend_config)
        except RayError as error:
            raise TrainingFailedError(f"The {len(group)} workers could not be made a group: {error}") from error
        return first

    def _first_report(self) -> int:
        """Reports are numbered through all attempts, so that folders of an attempt that failed are not mixed up with new ones."""
        self.storage.discard()
        return len(self.history)

    def record(self, index: int, said: dict[int, Report]) -> None:
        """Report `index` is complete."""
        rank = min(said)
        metrics = dict(said[rank].metrics)
        checkpoint = self._store(index, said)
        now = time.time()
        for key, value in {
            "timestamp": int(now), "training_iteration": len(self.history) + 1, "trial_id": self.storage.trial_id,
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)), "time_this_iter_s": now - self.last,
            TIME_TOTAL_S: now - self.begin, "pid": os.getpid(), "hostname": socket.gethostname(),
            "node_ip": raygo.util.get_node_ip_address(), "iterations_since_restore": len(self.history) + 1 - self.restored_at,
        }.items():
            metrics.setdefault(key, value)      # what the loop says itself stands
        if checkpoint is not None:
            metrics[CHECKPOINT_DIR_NAME] = os.path.basename(checkpoint.path)
            self.checkpoints.add(checkpoint, metrics)
        self.last = now
        self.history.append(metrics)
        self.files.write(metrics)
        for callback in self.run_config.callbacks or []:
            callback.after_report(self, [said[r].metrics for r in sorted(said)], checkpoint)

    def _store(self, index: int, said: dict[int, Report]) -> Checkpoint | None:
        given = next((r.name for r in said.values() if r.name), None)
        if any(report.uploaded is not None for report in said.values()):
            name = given or (self.checkpoints.next_name() if self.storage.files.local else checkpoint_name(index))
            return self.storage.commit(index, name, sorted({file for report in said.values() for file in report.uploaded or ()}))
        in_place = [report.in_place for _, report in sorted(said.items()) if report.in_place]
        return in_place[0] if in_place else None

    def late(self, index: int, report: Report) -> None:
        """A rank made a report that was taken without it: its files join the checkpoint, if that is still there."""
        if report.uploaded is None:
            return
        name = self.history[index].get(CHECKPOINT_DIR_NAME)
        if name and self.storage.is_checkpoint(name):
            self.storage.commit(index, name)
        else:
            self.storage.discard(index)


class Gather:
    """Takes the ranks' reports until all have ended, or one has failed and what it reported before is taken too."""

    def __init__(self, run: Run, group: WorkerGroup, runs: list[Any], first: int) -> None:
        self.run_of = run
        self.group = group
        self.next_index = first
        self.pending: dict[int, Pending] = {}
        self.values: list[Any] = [None] * len(runs)
        self.errors: dict[int, Exception] = {}
        self.returned: set[int] = set()       # the function came to its end
        self.drained: set[int] = set()        # all reports are here
        self.waiting: dict[Any, tuple[str, int]] = {ref: ("run", rank) for rank, ref in enumerate(runs)}
        for rank in range(len(runs)):
            self._ask(rank)

    def _ask(self, rank: int) -> None:
        self.waiting[self.group.workers[rank].actor.next_report.remote()] = ("report", rank)

    def run(self) -> list[Any]:
        give_up: float | None = None
        while self.waiting:
            now = time.monotonic()
            if give_up is not None and now >= give_up:
                break
            left = self._patience_left() if give_up is None else give_up - now
            ready, _ = raygo.wait(list(self.waiting), num_returns=1, timeout=left)
            for ref in ready:
                self._see(*self.waiting.pop(ref), ref)
            self._complete()
            if self.errors and give_up is None:
                give_up = time.monotonic() + _ERRORS_SETTLE_S
        if self.errors:
            raise WorkersFailed(self.errors, [worker.metadata.pid for worker in self.group.workers]) from next(iter(self.errors.values()))
        return self.values

    def _see(self, kind: str, rank: int, ref: Any) -> None:
        try:
            value = raygo.get(ref)
        except Exception as error:
            self.errors.setdefault(rank, error)
            return
        if kind == "run":
            self.values[rank] = value
            self.returned.add(rank)
        elif value is None:
            self.drained.add(rank)
        else:
            self._take(rank, value)
            self._ask(rank)

    def _take(self, rank: int, report: Report) -> None:
        if report.index < self.next_index:
            self.run_of.late(report.index, report)
            return
        self.pending.setdefault(report.index, Pending(time.monotonic())).said[rank] = report

    def _complete(self) -> None:
        while (pending := self.pending.get(self.next_index)) is not None:
            absent = [rank for rank in range(len(self.values)) if rank not in pending.said and rank not in self.returned & self.drained]
            if absent and not set(absent) <= self.run_of.warned:
                if time.monotonic() - pending.since < self.run_of.patience:
                    return
                fresh = sorted(set(absent) - self.run_of.warned)
                self.run_of.warned |= set(fresh)
                warnings.warn(f"rank(s) {', '.join(map(str, fresh))} did not call report() within {self.run_of.patience:g} s of the others "
                              f"(report {self.next_index + 1}) and are not waited for any more. Each worker should report; "
                              f"{REPORT_PATIENCE_S_ENV} says how long to wait.", stacklevel=4)
            del self.pending[self.next_index]
            index, self.next_index = self.next_index, self.next_index + 1
            self.run_of.record(index, pending.said)

    def _patience_left(self) -> float | None:
        pending = self.pending.get(self.next_index)
        return None if pending is None else max(0.0, self.run_of.patience - (time.monotonic() - pending.since)) + 0.01


class WorkersFailed(Exception):
    """Ranks failed in one attempt."""

    def __init__(self, errors: dict[int, Exception], pids: list[int]) -> None:
        super().__init__(errors)
        self.errors = errors
        self.pids = pids
        self.rank = min(errors, key=lambda rank: (_is_consequence(errors[rank]), rank))
        self.cause = errors[self.rank]

    def first_line(self) -> str:
        plain = getattr(self.cause, "cause", None) or self.cause       # without the remote traceback
        lines = str(plain).strip().splitlines()
        return f"The worker of rank {self.rank} (pid {self.pids[self.rank]}) failed: {type(plain).__name__}: {lines[0] if lines else ''}."

    def text(self, folder: str, failures: int) -> str:
        others = sorted(rank for rank in self.errors if rank != self.rank)
        also = f" Ranks that failed after it: {', '.join(map(str, others))}." if others else ""
        return f"Training failed{f' {failures} times' if failures > 1 else ''}. {self.first_line()}{also} The run's folder is {folder}."


def _is_consequence(error: Exception) -> bool:
    text = str(getattr(error, "cause", None) or error).lower()
    return isinstance(error, RayTaskError) and any(word in text for word in _CONSEQUENCES)


def _new_run(config: RunConfig, trainer: str) -> StorageContext:
    """Makes the folders of a fresh run."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    trial_id = f"{uuid.uuid4().hex[:5]}_00000"
    storage = StorageContext(config.storage_path, config.name or f"{trainer}_{stamp}", storage_filesystem=config.storage_filesystem,
                             trial_dir_name=f"{trainer}_{trial_id}_0_{stamp}", trial_id=trial_id, trial_name=f"{trainer}_{trial_id}")
    storage.create()
    return storage


def _environment(place: Any) -> dict[str, str]:
    return {"RANK": str(place.world_rank), "WORLD_SIZE": str(place.world_size), "LOCAL_RANK": str(place.local_rank),
            "LOCAL_WORLD_SIZE": str(place.local_world_size), "NODE_RANK": str(place.node_rank)}
