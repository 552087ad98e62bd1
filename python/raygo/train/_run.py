"""The driver's side of a run: starts the workers, keeps what they report, starts again after failures.

At any time the driver may be killed: a checkpoint is on the storage before it is noted, and noted before an older one goes, so that the
same run, started again, goes on from the last report that was complete.
"""
from __future__ import annotations

import contextlib
import copy
import logging
import os
import shutil
import signal
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import raygo
from raygo import _session as engine_session
from raygo.exceptions import RayError
from raygo.train import _local
from raygo.train._callbacks import RunCallbacks
from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import DataConfig, materialize
from raygo.train._failures import WorkersFailed, in_short
from raygo.train._folder import drop_half_line, find_run, lock_run
from raygo.train._gather import Gather, journal_folder
from raygo.train._kept import ERRORED, FINISHED, INTERRUPTED, RUNNING, KeptCheckpoints, best_of, next_number
from raygo.train._messages import Brought, Place, Report
from raygo.train._preload import Preloading
from raygo.train._reported import ReportedCheckpoint, ReportedCheckpointStatus, ValidationConfig, Validations
from raygo.train._result import Result, read_history, with_noted
from raygo.train._settings import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from raygo.train._storage import Mirror, StorageContext, checkpoint_name
from raygo.train._worker_group import WorkerGroup, check_feasible
from raygo.train.backend import Backend, BackendConfig
from raygo.train.constants import (
    CHECKPOINT_DIR_NAME,
    DEFAULT_REPORT_PATIENCE_S,
    EXPR_PROGRESS_FILE,
    PROFILE_ENV,
    REPORT_PATIENCE_S_ENV,
    RESULT_FILE_JSON,
    TIME_TOTAL_S,
    TRAINER_PICKLE_FILE,
    TUNE_ORIG_WORKING_DIR,
)
from raygo.train.error import ControllerError, TrainingFailedError, WorkerGroupError

log = logging.getLogger("raygo.train")


class StartFailed(Exception):
    """The workers were there, but did not become a group."""


class Run:
    """One call of `fit`; also what callbacks get as `run_context`.

    Parameters
    ----------
    trainer_name : str
        For the names of folders.
    pickled : bytes, optional
        The trainer, for `restore`.
    placement : tuple, optional
        A placement group and the numbers of its bundles that the workers go to, where somebody else has reserved them.
    storage : StorageContext, optional
        Where the run is stored, where somebody else has decided that; then it is not restored from there.
    """

    def __init__(self, *, trainer_name: str, train_loop: Callable[..., Any], config: dict[str, Any] | None, scaling: ScalingConfig,
                 run_config: RunConfig, backend_config: BackendConfig, metadata: dict[str, Any] | None, resume_from: Checkpoint | None,
                 datasets: dict[str, Any] | None = None, dataset_config: DataConfig | None = None,
                 validation_config: ValidationConfig | None = None, pickled: bytes | None = None, placement: Any = None,
                 storage: StorageContext | None = None, on_report: Callable[[dict[str, Any], Checkpoint | None], None] | None = None) -> None:
        self.trainer_name = trainer_name
        self.train_loop = train_loop
        self.train_loop_config = config
        self.scaling_config = scaling
        self.run_config = run_config
        self.backend_config = backend_config
        self.metadata = dict(metadata or {})
        self.start_from = resume_from
        self.datasets = dict(datasets or {})
        self.dataset_config = dataset_config or DataConfig()
        self.validations = Validations(validation_config)
        self.failure_config = run_config.failure_config or FailureConfig()
        self.patience = float(os.environ.get(REPORT_PATIENCE_S_ENV, DEFAULT_REPORT_PATIENCE_S))
        self.profiled = os.environ.get(PROFILE_ENV) == "1"
        self.placement = placement
        self.on_report = on_report
        self.is_local = scaling.max_workers == 0
        if placement is None and not self.is_local:
            check_feasible(scaling)      # before there is a folder of a run that cannot be
        self.history: list[dict[str, Any]] = []
        self.reported: list[ReportedCheckpoint] = []
        self.warned: set[int] = set()              # ranks that are not waited for
        self.reporters: set[int] = set()           # ranks that have reported, and so will again
        self.contributors: tuple[int, set[int]] = (0, set())       # size of the group, and the ranks that brought the last checkpoint
        self.group_size = 0
        self.preloading: Preloading | None = None
        self.unforwarded: Checkpoint | None = None # one that came after its report, for `on_report`
        self.stopped = False
        self.said_that_names_are_shared = False
        self.first_index = 0
        self.lock: int | None = None
        self.unwritten: list[dict[str, Any]] = []  # reports that a killed driver had noted, but not written to all files
        self.recovered: list[str] = []             # checkpoints of which a killed driver had not noted anything
        self.begin = self.last = time.time()
        self.time_before = 0.0                     # of the run that this one goes on with
        self.restored_at = 0                       # reports made before the last restart
        try:
            self._open(storage, pickled)
            self.callbacks = RunCallbacks(self)
        except BaseException as error:
            self._unlock()
            if isinstance(error, OSError):
                raise type(error)(error.errno or 0, f"the run cannot be stored with storage_path={run_config.storage_path!r}: {error.strerror or error}. "
                                  "Give RunConfig a storage_path that can be read and written", error.filename) from error
            raise

    def _open(self, storage: StorageContext | None, pickled: bytes | None) -> None:
        noted = None
        self.in_trial = storage is not None
        if storage is None:
            storage, noted = find_run(self.run_config, self.trainer_name)
        self.storage = storage
        self.checkpoints = KeptCheckpoints(self.run_config.checkpoint_config or CheckpointConfig(), storage, noted=not self.in_trial)
        if self.in_trial:
            # Those that lie elsewhere only the trial knows.
            self.first_index = self.checkpoints.made = max(next_number(storage.checkpoints()), storage.current_checkpoint_index)
        else:
            self.storage.create()
            self.lock = lock_run(storage)
        folder = storage.trial_driver_staging_path
        os.makedirs(folder, exist_ok=True)
        if self.run_config.name is None:         # callbacks may ask for it
            self.run_config = copy.copy(self.run_config)
            self.run_config.name = storage.experiment_dir_name
        self.mirror = Mirror(storage.files, folder, storage.trial_fs_path)
        if noted is not None:
            self._go_on(noted, folder)
        if pickled is not None:
            storage.files.write(f"{storage.experiment_fs_path}/{TRAINER_PICKLE_FILE}", pickled)
        self.checkpoints.save()

    def _go_on(self, noted: dict[str, Any], folder: str) -> None:
        """Takes up the run that is in the folder already."""
        written = read_history(self.storage)
        self.history = with_noted(written, noted)
        self.unwritten = self.history[len(written):]
        if not self.storage.files.local:
            for name in (RESULT_FILE_JSON, EXPR_PROGRESS_FILE):
                with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), "wb") as file:
                    file.write(self.storage.files.read(f"{self.storage.trial_fs_path}/{name}"))
        for name in (RESULT_FILE_JSON, EXPR_PROGRESS_FILE):
            drop_half_line(os.path.join(folder, name))
        self.recovered = self.checkpoints.load(noted, self.history)
        self.reported = [ReportedCheckpoint(checkpoint, metrics, ReportedCheckpointStatus.COMMITTED) for checkpoint, metrics in self.checkpoints.kept]
        self.time_before = float(self.history[-1].get(TIME_TOTAL_S, 0.0)) if self.history else 0.0
        log.info("the run in %s goes on from %s; give another name for a fresh one", self.storage.experiment_fs_path,
                 self.checkpoints.newest or "its beginning, as it has no checkpoint")

    def _unlock(self) -> None:
        lock, self.lock = self.lock, None
        if lock is not None:
            os.close(lock)

    def fit(self) -> Result:
        """Trains until all workers have come to the end."""
        try:
            return self._fit()
        finally:
            self._unlock()

    def _fit(self) -> Result:
        failed = starts_failed = 0
        if self.backend_config.preload and not self.run_config.worker_runtime_env and not self.is_local:
            # While they are imported, datasets are read, and what shows the run is made ready.
            self.preloading = Preloading(self.backend_config.preload)
        journals = journal_folder(engine_session.current.session_dir if engine_session.current else "", uuid.uuid4().hex)
        with _sigterm_is_an_exit(), self._noted(), self.callbacks:
            try:
                for metrics in self.unwritten:
                    self.callbacks.write(metrics)
                for name in self.recovered:
                    self._keep({}, self.storage.checkpoint(name))
                self.datasets = materialize(self.datasets)
                while True:
                    try:
                        value = self._attempt(journals)
                        break
                    except WorkersFailed as failure:
                        self.callbacks.failed(failure.errors)
                        failed += 1
                        if self.failure_config.fail_fast == "raise":
                            raise failure.cause from None
                        if self._gives_up(failed, self.failure_config.max_failures):
                            raise WorkerGroupError(failure.text(self.storage.trial_fs_path, failed), failure.errors) from failure.cause
                        self._again(failure.first_line(), failed, self.failure_config.max_failures)
                    except StartFailed as failure:
                        if (limit := self.failure_config.controller_failure_limit) >= 0:
                            starts_failed += 1
                            count = starts_failed
                        else:
                            failed += 1
                            limit, count = self.failure_config.max_failures, failed
                        if self._gives_up(count, limit):
                            raise ControllerError(failure) from failure.__cause__
                        self._again(str(failure), count, limit)
                self.finish_validations()
            finally:
                if journals is not None:
                    shutil.rmtree(journals, ignore_errors=True)
                self._discard()
        filesystem = None if self.storage.files.local else self.storage.storage_filesystem
        result = Result(self.history[-1] if self.history else {}, self.checkpoints.newest, None, self.storage.trial_fs_path,
                        cast(Any, self.history), best_of(self.checkpoints.kept, self.checkpoints.config), filesystem, value)
        result._config = self.train_loop_config
        return result

    def _discard(self) -> None:
        """Removes what came to nothing.  That it stays there takes room, but is no reason to fail, let alone to hide why the run did."""
        try:
            self.storage.discard(keep=self.checkpoints.names())
        except Exception as error:       # fsspec lets errors of the service's own kind through
            log.warning("what is left of checkpoints that are not whole could not be removed from %s: %s", self.storage.trial_fs_path, error)

    def _gives_up(self, failed: int, limit: int) -> bool:
        return bool(self.failure_config._fails_fast) or 0 <= limit < failed

    def _again(self, what: str, failed: int, limit: int) -> None:
        self.callbacks.again()
        warnings.warn(f"{what} Starting again from {self.checkpoints.newest or 'the beginning'} "
                      f"(failure {failed} of {limit if limit >= 0 else 'any number'}).", stacklevel=5)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """The run's folder says how it ended, and has all files of it."""
        status = ERRORED
        try:
            yield
            status = FINISHED
        except (KeyboardInterrupt, SystemExit):
            status = INTERRUPTED
            raise
        finally:
            self.checkpoints.status = status
            try:
                self.checkpoints.save()
                self.mirror.close()
            except Exception as error:
                if status == FINISHED:
                    raise TrainingFailedError(f"Training came to its end, but not all results could be stored: {error}") from error
                log.warning("not all results could be stored: %s", error)

    def _attempt(self, journals: str | None) -> Any:
        """Trains once from the newest checkpoint; what rank 0's function returned."""
        self.restored_at = len(self.history)
        self.checkpoints.status = RUNNING
        if self.is_local:
            return _local.train(self, self.first_index + len(self.history))
        backend = self.backend_config.backend_cls()
        if self.preloading is not None:
            preloading, self.preloading = self.preloading, None
            preloading.wait()
        try:
            group = WorkerGroup(self.scaling_config, self.run_config.worker_runtime_env, self.placement)
        except RayError as error:
            raise StartFailed(f"Not all of the {self.scaling_config.min_workers} workers could be started: {in_short(error).rstrip('.')}.") from error
        try:
            first, files = self._start(group, backend, journals)
            loop = raygo.put(self.train_loop)
            runs = [worker.actor.run.remote(loop, self.train_loop_config, self.backend_config.train_func_context) for worker in group.workers]
            gather = Gather(self, group, runs, first, files)
            self.callbacks.started(group, gather)
            value = returned(gather.run()[0])
            if not self.stopped:
                try:
                    backend.on_shutdown(group, self.backend_config)
                except RayError as error:       # the function had come to its end on all ranks
                    log.warning("training is over, but the workers did not end their group well: %s", error)
            return value
        finally:
            group.shutdown()

    def _start(self, group: WorkerGroup, backend: Backend, journals: str | None) -> tuple[int, list[str]]:
        """Makes the workers a group; the number of their first report, and their journals."""
        start = self.newest_checkpoint()
        # Reports are numbered through all attempts, so that folders of an attempt that failed are not mixed up with new ones.
        first = self.first_index + len(self.history)
        if self.storage.files.local:
            self.storage.discard()
        self.group_size = len(group)
        files = [os.path.join(journals or "", f"{first}-{uuid.uuid4().hex[:8]}-{rank}") for rank in range(len(group))]
        # In a trial workers are in its folder: those of several trials would write to each other's files in one.
        home = os.environ.get(TUNE_ORIG_WORKING_DIR)
        folder = here if home is not None and (here := os.getcwd()) != home else None
        try:
            places = group.places(self.scaling_config.as_placement_group_factory(), self.metadata)
            self._deal_out_datasets(group, places)
            for place in places:
                place.validates = self.validations.config is not None
            raygo.get([worker.actor.set_up.remote(place, self.storage, start, first, _environment(place), file, folder)
                       for worker, place, file in zip(group.workers, places, files, strict=True)])
            if backend.share_cuda_visible_devices:
                group.share_gpus()
            backend.on_start(group, self.backend_config)
            backend.on_training_start(group, self.backend_config)
        except RayError as error:
            raise StartFailed(f"The {len(group)} workers could not be made a group: {in_short(error).rstrip('.')}.") from error
        return first, files

    def _deal_out_datasets(self, group: WorkerGroup, places: list[Place]) -> None:
        if not self.datasets and type(self.dataset_config) is DataConfig:
            return
        nodes = [worker.metadata.node_id for worker in group.workers]
        shards = self.dataset_config.configure(self.datasets, len(group), [worker.actor for worker in group.workers], nodes)
        if len(shards) != len(places):
            raise ValueError(f"{type(self.dataset_config).__name__}.configure gave datasets for {len(shards)} workers, of which there are {len(places)}")
        for place, shard in zip(places, shards, strict=True):
            place.shards = shard

    # What `Gather` calls.

    def record(self, index: int, said: dict[int, Report], brought: dict[int, Brought]) -> None:
        """Report `index` is complete."""
        checkpoint = self._store(index, said, brought)
        first = said[min(said)]
        metrics = dict(first.metrics)
        if self.profiled:
            wall, data, communication = first.profile
            metrics.update(time_data_s=data, time_communication_s=communication, time_compute_s=max(0.0, wall - data - communication))
        own = dict(metrics)
        self._keep(metrics, checkpoint)
        if checkpoint is not None:
            how = next((report.validation for _, report in sorted(said.items()) if report.validation), False)
            if how:
                self.validations.start(self.reported[-1], how)
        self.callbacks.reported(said, metrics, checkpoint)
        if self.on_report is not None:
            late, self.unforwarded = self.unforwarded, None
            self.on_report(own, checkpoint or late)         # a trial counts itself, also what came before it was resumed
        if self.callbacks.should_stop(metrics):
            self.stopped = True

    def _keep(self, metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        now = time.time()
        for key, value in {
            "timestamp": int(now), "training_iteration": len(self.history) + 1, "trial_id": self.storage.trial_id,
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)), "time_this_iter_s": now - self.last,
            TIME_TOTAL_S: self.time_before + now - self.begin, "pid": os.getpid(), "hostname": socket.gethostname(),
            "node_ip": raygo.util.get_node_ip_address(), "iterations_since_restore": len(self.history) + 1 - self.restored_at,
        }.items():
            metrics.setdefault(key, value)      # what the loop says itself stands
        self.last = now
        if checkpoint is not None:
            metrics[CHECKPOINT_DIR_NAME] = checkpoint.path.rpartition("/")[2]
        self.history.append(metrics)
        self.callbacks.write(metrics)
        if checkpoint is not None:
            self._add(checkpoint, metrics)
        self.mirror.touch()

    def _add(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self.reported.append(ReportedCheckpoint(checkpoint, metrics, ReportedCheckpointStatus.COMMITTED))
        self.checkpoints.add(checkpoint, metrics, self.validations.in_use())

    def newest_checkpoint(self) -> Checkpoint | None:
        """What training goes on from."""
        return self.checkpoints.newest or self.start_from

    def kept_reports(self) -> list[ReportedCheckpoint]:
        """The checkpoints that are there, with their reports."""
        last = {reported.checkpoint.path: reported for reported in self.reported}      # of a name that is used again
        self.reported = [last[checkpoint.path] for checkpoint, _ in self.checkpoints.kept if checkpoint.path in last]
        return list(self.reported)

    def _store(self, index: int, said: dict[int, Report], brought: dict[int, Brought]) -> Checkpoint | None:
        uploaded = {rank: each.files for rank, each in brought.items() if each.files is not None}
        if uploaded:
            given = next((each.name for each in brought.values() if each.name), None)
            if any(each.failed for each in brought.values()):
                self.storage.discard(index, given)      # not whole
                return None
            name = given or (self.checkpoints.next_name() if self.storage.files.local else checkpoint_name(index))
            # Other ranks may have put their part into the checkpoint's folder themselves.
            joins = any(each.in_place == self.storage.checkpoint(name) for each in brought.values())
            return self.storage.commit(index, name, None if joins else self._all_files(name, uploaded), more=len(said) < self.group_size)
        in_place = [each.in_place for _, each in sorted(brought.items()) if each.in_place is not None]
        return in_place[0] if in_place else None

    def _all_files(self, name: str, uploaded: dict[int, list[str]]) -> list[str]:
        owners: dict[str, list[int]] = {}
        for rank, files in uploaded.items():
            for file in files:
                owners.setdefault(file, []).append(rank)
        shared = sorted(file for file, ranks in owners.items() if len(ranks) > 1)
        if shared and not self.storage.files.local and not self.said_that_names_are_shared:
            self.said_that_names_are_shared = True
            warnings.warn(f"{name} on {self.storage.files.name}: ranks {sorted(owners[shared[0]])} all brought a file {shared[0]!r}, of which the last "
                          "one that arrived stays. Give each rank's files names of their own, or have one rank report the checkpoint.", stacklevel=6)
        return sorted(owners)

    def late(self, brought: Brought) -> None:
        """A rank brought a checkpoint for a report that was taken without it.

        Its files join the report's checkpoint, if that is still there.  Where the report has none, it is this one, unless there is a newer one.
        """
        if not self.history:
            return
        index = brought.index
        position = index - self.first_index
        metrics = self.history[position if position < len(self.history) else -1]
        name = metrics.get(CHECKPOINT_DIR_NAME)
        if name and name in self.checkpoints.names() and brought.files is not None:
            self.storage.commit(index, name)
        elif name or brought.failed or any(later.get(CHECKPOINT_DIR_NAME) for later in self.history[position:]):
            if brought.files is not None:
                self.storage.discard(index, brought.name, self.checkpoints.names())
        elif (checkpoint := self._store(index, {}, {0: brought})) is not None:
            metrics[CHECKPOINT_DIR_NAME] = checkpoint.path.rpartition("/")[2]
            self.checkpoints.amended.add(checkpoint.path)
            self._add(checkpoint, metrics)
            self.unforwarded = checkpoint

    def validated(self, ref: Any) -> None:
        """A validation has ended."""
        reported = self.validations.running[ref][0]
        error = self.validations.seen(ref)
        if error is not None:
            warnings.warn(f"The validation of {reported.checkpoint} failed: {error}", stacklevel=5)
        self.checkpoints.amended.add(reported.checkpoint.path)
        self.checkpoints.prune(self.validations.in_use())

    def expire_validations(self) -> None:
        """Ends validations that take too long."""
        late = self.validations.expire()
        if late:
            self.checkpoints.prune(self.validations.in_use())
        for reported in late:
            warnings.warn(f"The validation of {reported.checkpoint} was ended, as it took longer than its timeout_s", stacklevel=5)

    def finish_validations(self) -> None:
        """Waits for those under way."""
        while self.validations.running:
            ready, _ = raygo.wait(list(self.validations.running), num_returns=1, timeout=self.validations.patience())
            for ref in ready:
                self.validated(ref)
            self.expire_validations()


@contextlib.contextmanager
def _sigterm_is_an_exit() -> Iterator[None]:
    """While a run lasts, SIGTERM raises SystemExit, so that workers are stopped and the state is noted; unless the script handles it itself."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def returned(sent: bytes | str | None) -> Any:
    """What rank 0's function returned; training is no failure where that cannot be had."""
    if isinstance(sent, bytes):
        try:
            return raygo.cloudpickle.loads(sent)
        except Exception as error:
            sent = f"something that cannot be read in the driver: {type(error).__name__}: {error}"
    if sent is not None:
        warnings.warn(f"The training function returned {sent}. The Result has no return_value.", stacklevel=6)
    return None


def _environment(place: Place) -> dict[str, str]:
    return {"RANK": str(place.world_rank), "WORLD_SIZE": str(place.world_size), "LOCAL_RANK": str(place.local_rank),
            "LOCAL_WORLD_SIZE": str(place.local_world_size), "NODE_RANK": str(place.node_rank)}
