"""The worker processes of a run: actors in one placement group."""
from __future__ import annotations

import inspect
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import raygo
from raygo.train import _session
from raygo.train._files import explain_relative_path
from raygo.train.constants import DEFAULT_PLACEMENT_GROUP_TIMEOUT_S, TRAIN_ENABLE_WORKER_SPREAD_ENV, TRAIN_PLACEMENT_GROUP_TIMEOUT_S_ENV
from raygo.train.error import ControllerError
from raygo.util.placement_group import placement_group, remove_placement_group
from raygo.util.scheduling_strategies import PlacementGroupSchedulingStrategy

if TYPE_CHECKING:
    from raygo.train._settings import ScalingConfig

log = logging.getLogger("raygo.train")
# With an elastic group: how long it is tried with one number of workers.
_ELASTIC_STEP_S = 1.0


class TrainWorker:
    """The actor.  It is threaded: while `run` is at the training function, `next_report` hands out what that reports."""

    def __init__(self) -> None:
        self._session: _session.Session | None = None
        self._home: str | None = None         # the folder that it was in before it came into that of its trial

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def metadata(self) -> WorkerMetadata:
        context = raygo.get_runtime_context()
        return WorkerMetadata(context.get_node_id(), raygo.util.get_node_ip_address(), socket.gethostname(), os.getpid(),
                              [str(gpu) for gpu in raygo.get_gpu_ids()])

    def set_up(self, place: _session.Place, storage: Any, checkpoint: Any, first_report: int, environment: dict[str, str], journal: str,
               folder: str | None) -> None:
        os.environ.update(environment)
        if folder is not None:
            try:
                os.makedirs(folder, exist_ok=True)
                home = os.getcwd()
                os.chdir(folder)
                self._home = home
            except OSError as error:        # on another machine than the driver's
                log.warning("rank %d stays in the folder it started in: it cannot come into its trial's, %s: %s", place.world_rank, folder, error.strerror)
        # On another machine than the driver's there is no such folder, and what a dying worker said last is lost.
        known = journal if os.path.isdir(os.path.dirname(journal)) else None
        self._session = _session.current = _session.Session(place, storage, checkpoint, first_report, known)

    def run(self, function: Callable[..., Any], config: dict[str, Any] | None, context: Callable[[], Any]) -> bytes | str | None:
        """Calls the training function; what rank 0's returned, pickled, or why it cannot be.  The others' is nobody's business."""
        assert self._session is not None
        try:
            with context():
                value = call(function, config)
        except OSError as error:
            if self._home is not None:
                explain_relative_path(error, self._home)
            raise
        finally:
            self._session.end()
        if value is None or self._session.place.world_rank != 0:
            return None
        try:
            return bytes(raygo.cloudpickle.dumps(value))
        except Exception as error:
            return f"a {type(value).__name__}, which cannot be sent to the driver: {error}"

    def next_messages(self) -> list[bytes | None]:
        assert self._session is not None
        return self._session.mailbox.take()

    def answer(self, number: int, value: Any) -> None:
        assert self._session is not None
        self._session.answer(number, value)


def call(function: Callable[..., Any], config: dict[str, Any] | None) -> Any:
    """Call a training function, with the config if it needs one, or can take the one that was given.

    A parameter with a default may be for something else, as in ``lambda path=path: train(path)``.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function(config or {})
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    needed = any(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in places)
    return function(config or {}) if needed or (places and config is not None) else function()


@dataclass
class WorkerMetadata:
    """Where a worker runs."""

    node_id: str
    node_ip: str
    hostname: str
    pid: int
    gpu_ids: list[str]


@dataclass
class Worker:
    """An actor and where it runs."""

    actor: Any
    metadata: WorkerMetadata


class WorkerGroup:
    """Starts the workers and calls them.

    Parameters
    ----------
    scaling : ScalingConfig
        How many, and what each needs.
    runtime_env : dict, optional
        Of the workers.
    placement : tuple, optional
        A placement group and the numbers of its bundles, where somebody else has reserved them.

    Raises
    ------
    ControllerError
        The resources are not there, or did not become free in time.
    """

    def __init__(self, scaling: ScalingConfig, runtime_env: dict[str, Any] | None = None, placement: tuple[Any, list[int]] | None = None) -> None:
        self.workers: list[Worker] = []
        self._actors: list[Any] = []
        self._group: Any = None
        self._owned = placement is None
        if placement is not None:
            self._group, bundles = placement
            self._start(scaling, runtime_env, bundles)
            return
        check_feasible(scaling)
        size = self._reserve(scaling)
        try:
            self._start(scaling, runtime_env, list(range(size)))
        except BaseException:
            self.shutdown()
            raise

    def _reserve(self, scaling: ScalingConfig) -> int:
        """Reserves what the workers need; for how many, where ScalingConfig allows for fewer than the most."""
        patience = float(os.environ.get(TRAIN_PLACEMENT_GROUP_TIMEOUT_S_ENV, DEFAULT_PLACEMENT_GROUP_TIMEOUT_S))
        deadline = time.monotonic() + patience
        spread = scaling.placement_strategy == "PACK" and os.environ.get(TRAIN_ENABLE_WORKER_SPREAD_ENV) == "1"
        strategy = "SPREAD" if spread else scaling.placement_strategy
        # The most first, for a moment, as workers of the attempt before may still be about to let go.
        size = max(scaling.min_workers, min(scaling.max_workers, how_many_fit(scaling._worker_bundle, raygo.cluster_resources())))
        while (left := deadline - time.monotonic()) > 0:
            self._group = placement_group([scaling._worker_bundle] * size, strategy=strategy)
            try:
                if self._group.wait(min(left, _ELASTIC_STEP_S) if size > scaling.min_workers else left):
                    return size
            except BaseException:
                remove_placement_group(self._group)
                raise
            remove_placement_group(self._group)
            size = max(scaling.min_workers, min(size - 1, how_many_fit(scaling._worker_bundle, raygo.available_resources())))
        raise ControllerError(TimeoutError(
            f"{scaling.min_workers} workers with {scaling._worker_bundle} each could not be placed within {patience:g} s: "
            f"of {_short(raygo.cluster_resources())} only {_short(raygo.available_resources())} is free. "
            f"End what holds the rest, ask for less in ScalingConfig, or wait longer ({TRAIN_PLACEMENT_GROUP_TIMEOUT_S_ENV})."))

    def _start(self, scaling: ScalingConfig, runtime_env: dict[str, Any] | None, bundles: list[int]) -> None:
        needs = scaling._per_worker
        options: dict[str, Any] = {
            "num_cpus": needs.pop("CPU", 0), "num_gpus": needs.pop("GPU", 0), "resources": needs, "max_concurrency": 4}
        if runtime_env:
            options["runtime_env"] = runtime_env
        make = raygo.remote(**options)(TrainWorker)
        for index in bundles:
            place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
            self._actors.append(make.options(scheduling_strategy=place).remote())
        found = raygo.get([actor.metadata.remote() for actor in self._actors])
        # Ranks go machine by machine, so that local ranks are neighbours.
        order: dict[str, int] = {}
        for metadata in found:
            order.setdefault(metadata.node_id, len(order))
        pairs = sorted(zip(self._actors, found, strict=True), key=lambda pair: (order[pair[1].node_id], pair[1].gpu_ids))
        self.workers = [Worker(actor, metadata) for actor, metadata in pairs]
        self._actors = [worker.actor for worker in self.workers]

    def places(self, resources: Any, metadata: dict[str, Any]) -> list[_session.Place]:
        """The ranks."""
        on_node: dict[str, list[int]] = {}
        for rank, worker in enumerate(self.workers):
            on_node.setdefault(worker.metadata.node_id, []).append(rank)
        nodes = list(on_node)
        return [_session.Place(rank, len(self.workers), on_node[w.metadata.node_id].index(rank), len(on_node[w.metadata.node_id]),
                               nodes.index(w.metadata.node_id), resources, metadata) for rank, w in enumerate(self.workers)]

    def share_gpus(self) -> None:
        """Let each worker see the GPUs of all workers of its node."""
        from raygo._worker_run import share_gpus

        on_node: dict[str, list[str]] = {}
        for worker in self.workers:
            gpus = on_node.setdefault(worker.metadata.node_id, [])
            gpus += [gpu for gpu in worker.metadata.gpu_ids if gpu not in gpus]
        raygo.get([w.actor.execute.remote(share_gpus, on_node[w.metadata.node_id]) for w in self.workers if w.metadata.gpu_ids])

    def __len__(self) -> int:
        return len(self.workers)

    def execute_async(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function in each worker; references of the results."""
        return [worker.actor.execute.remote(func, *args, **kwargs) for worker in self.workers]

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function in each worker and wait."""
        return list(raygo.get(self.execute_async(func, *args, **kwargs)))

    def execute_single_async(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in one worker; the reference of the result."""
        return self.workers[worker_index].actor.execute.remote(func, *args, **kwargs)

    def execute_single(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in one worker and wait."""
        return raygo.get(self.execute_single_async(worker_index, func, *args, **kwargs))

    def shutdown(self) -> None:
        """End the workers at once and give their resources back."""
        actors, self._actors, self.workers = self._actors, [], []
        if not raygo.is_initialized():
            return
        for actor in actors:
            raygo.kill(actor)
        if self._owned:
            remove_placement_group(self._group)


def how_many_fit(bundle: dict[str, float], resources: dict[str, float]) -> int:
    """How many workers these resources are enough for."""
    return min((int(resources.get(key, 0.0) / amount + 1e-9) for key, amount in bundle.items()), default=0)


def check_feasible(scaling: ScalingConfig) -> None:
    """Raises when all machines would not be enough, so that nobody waits for what cannot come."""
    bundle, count = scaling._worker_bundle, scaling.min_workers
    total = raygo.cluster_resources()
    nodes = [node["Resources"] for node in raygo.nodes() if node["Alive"]]
    missing = [f"{amount * count:g} {key} (there are {total.get(key, 0.0):g})" for key, amount in bundle.items()
               if amount * count > total.get(key, 0.0) + 1e-9]
    if missing:
        raise ControllerError(ValueError(f"{count} workers with {bundle} each need {', '.join(missing)}: training cannot start. "
                                         "Ask for less in ScalingConfig(num_workers=, resources_per_worker=, use_gpu=), or start raygo with more."))
    fits = [how_many_fit(bundle, node) for node in nodes]
    if not any(fits):
        raise ControllerError(ValueError(f"no machine has what one worker needs: {bundle}. The machines have {[_short(n) for n in nodes]}."))
    strict = {"STRICT_PACK": max(fits), "STRICT_SPREAD": sum(map(bool, fits))}.get(scaling.placement_strategy, count)
    if strict < count:
        raise ControllerError(ValueError(f"with placement_strategy={scaling.placement_strategy!r} there is room for {strict} workers with {bundle} each, "
                                         f"not for {count}: the machines have {[_short(n) for n in nodes]}."))


def _short(resources: dict[str, float]) -> dict[str, float]:
    return {key: amount for key, amount in resources.items() if not key.startswith(("node:", "memory", "object_store"))}
