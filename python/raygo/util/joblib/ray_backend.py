"""joblib's backend: each batch is a task.

Tasks and not a pool of actors: the scheduler balances them and nothing has to start first.  joblib decides how many calls make a
batch (AutoBatchingMixin) and hands out twice as many batches as there are jobs; where fewer jobs than CPUs are wanted the backend
holds back what is too much.

Values keep the semantics that joblib's own process backend has: small arrays arrive as writable copies, arrays of `max_nbytes` and
more are stored once for all batches and arrive as read-only views, results are the caller's own.
"""
from __future__ import annotations

import collections
import concurrent.futures
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

from joblib._parallel_backends import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

import raygo
from raygo import _serialization

__all__ = ["RayBackend"]

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_loading = threading.local()      # .arrays: what the batch being read refers to


class RayBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs joblib's batches as tasks of the session.

    Parameters
    ----------
    nesting_level, inner_max_num_threads
        joblib's own.  `inner_max_num_threads` limits BLAS and OpenMP inside the tasks, where threadpoolctl is installed.
    ray_remote_args : dict, optional
        Options of the tasks, such as ``{"num_gpus": 1}``.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    uses_threads = False
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, inner_max_num_threads: int | None = None,
                 ray_remote_args: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(nesting_level=nesting_level or 0, inner_max_num_threads=inner_max_num_threads, **kwargs)
        self._remote_args = dict(ray_remote_args or {})
        self._task: Any = None
        self._lock = threading.Lock()
        self._shared = _Shared(_bytes("1M"))
        self._most: int | None = None                 # batches in flight; None: the scheduler decides
        self._flying: dict[_Job, Any] = {}            # running or at the scheduler -> its reference
        self._held: collections.deque[_Job] = collections.deque()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many jobs run at once; -1 stands for all CPUs of the session, -2 for all but one."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            n_jobs = -1
        if n_jobs > 0:
            return n_jobs
        return max(1, _cpus() + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, prefer: str | None = None, require: str | None = None,
                  ray_remote_args: dict[str, Any] | None = None, **memmappingpool_args: Any) -> int:
        """Prepare for one `Parallel`."""
        self.parallel = parallel
        if ray_remote_args is not None:
            self._remote_args = dict(ray_remote_args)
        jobs = self.effective_n_jobs(n_jobs)
        if jobs == 1 and not self._remote_args:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        cpus_each = self._remote_args.get("num_cpus", 1)
        self._most = None if cpus_each and jobs * cpus_each >= _cpus() else jobs
        self._shared = _Shared(_bytes(memmappingpool_args.get("max_nbytes", "1M")))
        self._task = raygo.remote(**{"name": "joblib", **self._remote_args})(_run)
        return jobs

    def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> _Job:
        """Send a batch, or hold it until one of those in flight is done."""
        job = _Job(*self._shared.dump(func))
        if callback is not None:
            job.future.add_done_callback(callback)
        with self._lock:
            if self._most is not None and len(self._flying) >= self._most:
                self._held.append(job)
                return job
            self._flying[job] = None
        self._send(job)
        return job

    apply_async = submit       # the name in joblib before 1.4

    def _send(self, job: _Job) -> None:
        try:
            ref = self._task.remote(job.batch, self.inner_max_num_threads, *job.arrays)
        except BaseException as error:
            self._ended(job)
            job.future.set_exception(error)
            return
        job.batch, job.arrays = b"", []
        with self._lock:
            if job in self._flying:
                self._flying[job] = ref
        ref.future().add_done_callback(lambda done: self._done(job, done))

    def _done(self, job: _Job, done: concurrent.futures.Future[Any]) -> None:
        self._ended(job)
        error = done.exception()
        if job.future.done():        # given up by abort_everything
            return
        if error is not None:
            job.future.set_exception(error)
            return
        try:
            value = pickle.loads(done.result())
        except BaseException as failed:
            job.future.set_exception(failed)
        else:
            job.future.set_result(value)

    def _ended(self, job: _Job) -> None:
        """Makes room for a batch that was held back."""
        with self._lock:
            self._flying.pop(job, None)
            if not self._held or (self._most is not None and len(self._flying) >= self._most):
                return
            following = self._held.popleft()
            self._flying[following] = None
        self._send(following)

    def retrieve_result_callback(self, out: Any) -> Any:
        """The results of a batch that is done, or its error raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what is under way, after an error or when a generator was dropped."""
        with self._lock:
            flying, self._flying = self._flying, {}
            self._held.clear()
        for ref in flying.values():
            if ref is not None:
                raygo.cancel(ref)
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel, **self.parallel._backend_kwargs)

    def terminate(self) -> None:
        """Let go of the arrays that were stored for this `Parallel`."""
        self._shared = _Shared(self._shared.limit)
        self.reset_batch_stats()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.nesting_level, self.inner_max_num_threads, self._remote_args)


def _rebuild(nesting_level: int, inner_max_num_threads: int | None, ray_remote_args: dict[str, Any]) -> RayBackend:
    return RayBackend(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, ray_remote_args=ray_remote_args)


class _Job:
    """A batch and what will come of it."""

    def __init__(self, batch: bytes, arrays: list[Any]) -> None:
        self.batch = batch
        self.arrays = arrays
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def get(self, timeout: float | None = None) -> Any:
        """The results of the batch."""
        return self.future.result(timeout)


class _Shared:
    """The large arrays of one `Parallel`, stored once however many batches use them.

    Each array is kept together with its reference, so that its id() cannot pass to another one.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.stored: dict[int, tuple[Any, Any]] = {}

    def dump(self, batch: Any) -> tuple[bytes, list[Any]]:
        """The batch with a number in the place of each large array, and the arrays' references."""
        out = io.BytesIO()
        pickler = _Pickler(out, self)
        pickler.dump(batch)
        return out.getvalue(), pickler.refs

    def ref(self, array: Any) -> Any:
        key = id(array)
        if key not in self.stored:
            self.stored[key] = (array, raygo.put(array))
        return self.stored[key][1]


class _Pickler(_serialization._pickler()):  # type: ignore[misc]
    """raygo's own, so that registered serializers hold for joblib too."""

    def __init__(self, out: io.BytesIO, shared: _Shared) -> None:
        super().__init__(out, protocol=pickle.HIGHEST_PROTOCOL)
        self.storages: dict[int, Any] = {}
        self.shared = shared
        self.refs: list[Any] = []
        self.places: dict[int, int] = {}

    def reducer_override(self, obj: Any) -> Any:
        limit = self.shared.limit
        if limit is not None and type(obj).__module__ == "numpy" and type(obj).__name__ in ("ndarray", "memmap"):
            if obj.nbytes >= limit and not obj.dtype.hasobject:
                place = self.places.get(id(obj))
                if place is None:
                    place = self.places[id(obj)] = len(self.refs)
                    self.refs.append(self.shared.ref(obj))
                return _array, (place,)
        return super().reducer_override(obj)


def _array(place: int) -> Any:
    return _loading.arrays[place]


def _run(batch: bytes, threads: int | None, *arrays: Any) -> bytes:
    """The task: runs a batch and gives its results as bytes, which the caller reads into values of its own."""
    _loading.arrays = arrays
    try:
        calls = pickle.loads(batch)
    finally:
        _loading.arrays = ()
    with _limited(threads):
        results = calls()
    try:
        return pickle.dumps(results, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # something of __main__ or a closure: this knows, or says what is wrong
        return _serialization.dumps(results)


def _limited(threads: int | None) -> Any:
    import contextlib

    if threads is None:
        return contextlib.nullcontext()
    try:
        import threadpoolctl  # type: ignore[import-untyped]
    except ImportError:
        return contextlib.nullcontext()
    return threadpoolctl.threadpool_limits(limits=threads)


def _cpus() -> int:
    if not raygo.is_initialized():
        raygo.init()
    return max(1, int(raygo.cluster_resources().get("CPU", 1)))


def _bytes(size: int | str | None) -> int | None:
    """joblib's `max_nbytes`: a number, or "1M"."""
    if size is None or isinstance(size, int):
        return size
    if size[-1:].upper() in _UNITS:
        return int(float(size[:-1]) * _UNITS[size[-1].upper()])
    raise ValueError(f"max_nbytes is {size!r}: give a number of bytes, or one with K, M or G")
