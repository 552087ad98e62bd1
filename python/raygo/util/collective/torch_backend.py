"""torch.distributed's backend ``raygo``.

::

    import torch.distributed as dist
    from raygo.util.collective.torch_backend import register_backend

    register_backend()                    # needed where torch cannot find it by itself: before 2.15, or raygo not installed
    dist.init_process_group("raygo")      # or "cpu:raygo,cuda:nccl"

Operations that the caller waits for at once run on its thread; the others (``async_op=True``, gradients of DistributedDataParallel) on a thread of the
group's that needs no interpreter lock.  ``python/docs/collectives.md`` says more.
"""
from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as C10dBackend
from torch._C._distributed_c10d import Work

from raygo import _binding
from raygo.util.collective import _codes, _trace
from raygo.util.collective._monitored import Barriers
from raygo.util.collective._torch_store import GroupStore, agree
from raygo.util.collective._torch_work import Started, let_torch_ask
from raygo.util.collective._trace import trace

__all__ = ["RaygoBackend", "empty", "register_backend", "trace"]

NAME = "raygo"

_DTYPES = {getattr(torch, name): code for name, code in _codes.DTYPES.items() if hasattr(torch, name)}
_Op = dist.ReduceOp.RedOpType
_OPS = {_Op.SUM: _codes.SUM, _Op.AVG: _codes.AVG, _Op.PRODUCT: _codes.PRODUCT, _Op.MIN: _codes.MIN, _Op.MAX: _codes.MAX,
        _Op.BAND: _codes.BAND, _Op.BOR: _codes.BOR, _Op.BXOR: _codes.BXOR}

# Buckets of gradients from this size on are moved into memory that all ranks see; smaller ones are as quickly copied.
_ADOPT_BYTES = 1 << 16
# Where that has been tested, and how many references there are, counted in `allreduce`, to a tensor that comes straight from the reducer: those that a
# program has come with more.  Elsewhere buckets stay where torch put them, and are copied.
_BUCKET_REFERENCES = {"2.15": 5}
_BARRIER_TAG = 0xFFFE0001      # beyond those that a torch program can give


def _plain(tensor: torch.Tensor, operation: str) -> torch.Tensor:
    if tensor.is_sparse:
        raise TypeError(f"{operation}: the tensor is sparse, which the backend raygo does not do: give tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise TypeError(f"{operation}: the tensor is on {tensor.device}, and this group was made for the CPU: init_process_group('cpu:raygo,cuda:nccl')")
    return tensor


def _only(tensors: list[Any], operation: str) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"{operation}: {len(tensors)} tensors were given: the backend raygo takes one for each rank")
    return tensors[0]


def _code(dtype: torch.dtype, operation: str) -> int:
    try:
        return _DTYPES[dtype]
    except KeyError:
        raise TypeError(f"{operation}: the backend raygo cannot compute with {dtype}: convert the tensor, to float32 for instance") from None


def _moved(tensor: torch.Tensor) -> tuple[int, int]:
    """Elements and type of what is moved only: bytes will do for a type that the group does not know."""
    code = _DTYPES.get(tensor.dtype)
    return (tensor.numel(), code) if code is not None else (tensor.numel() * tensor.element_size(), _codes.BYTE)


class _Into:
    """Memory to be filled instead of tensors that are not contiguous, and the copies to make afterwards."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, tensor: torch.Tensor, read: bool = False) -> torch.Tensor:
        if _plain(tensor, self.operation).is_contiguous():
            return tensor
        held = tensor.contiguous() if read else torch.empty(tensor.shape, dtype=tensor.dtype)
        self.copies.append((tensor, held))
        return held

    def finish(self) -> None:
        with torch.no_grad():
            for tensor, held in self.copies:
                tensor.copy_(held)


class RaygoBackend(C10dBackend):
    """One rank's end of a process group whose tensors are in the memory of CPUs."""

    def __init__(self, group: _binding.Group, timeout: timedelta) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        self._timeout = timeout.total_seconds()
        self._options = C10dBackend.Options(NAME, timeout)
        self._together: Started | None = None       # of _start_coalescing
        self._sequence = 0
        # Completes futures.  Several threads, started when there is need: callbacks may wait for futures of operations that they have begun.
        self._futures = ThreadPoolExecutor(16, "raygo-futures")
        self._adopted: set[int] = set()
        self._bucket_references = _BUCKET_REFERENCES.get(".".join(torch.__version__.split(".")[:2]), 0)
        self._adopting = self._bucket_references > 0 and os.environ.get("RAYGO_TORCH_ARENA", "1") != "0"
        self._barriers = Barriers()

    # ---- running a call

    def _call(self, name: str, arguments: tuple[Any, ...], result: list[Any], keep: Any, opts: Any, into: _Into | None = None) -> Work | None:
        """Run a call of the group or start it, as the caller wishes."""
        self._sequence += 1
        together, timeout = self._together, self._limit(opts)
        if together is None and opts is not None and not getattr(opts, "asyncOp", True):
            getattr(self._group, name)(*arguments, timeout)
            if into is not None:
                into.finish()
            return None
        if together is None:
            work = Started(result, self._futures.submit)
        else:
            work = together
            work.one_more()
        if into is not None and into.copies:
            work.finish.append(into.finish)
            keep = (keep, into)
        if _trace.current is not None:
            work.spans.append(_trace.current.begin(name, sum(t.nbytes for t in result)))
        try:
            work.add(getattr(self._group, "i" + name)(*arguments, keep, work.part_ended, timeout))
        except BaseException:
            if into is not None and into.copies:
                work.finish.remove(into.finish)
            if _trace.current is not None:
                work.spans.pop().ended = time.time_ns()
            work.part_ended()       # what did not begin is not waited for
            raise
        if together is not None:
            work.outcome.extend(result)
        return work

    def _limit(self, opts: Any) -> float:
        if opts is None:
            return self._timeout
        seconds = opts.timeout.total_seconds()
        return seconds if seconds > 0 else self._timeout

    def _all(self, result: list[Any], opts: Any, calls: Sequence[Callable[[], Any]]) -> Work | None:
        """Several calls that their caller waits for as one."""
        if self._together is not None or not getattr(opts, "asyncOp", True):
            for call in calls:
                call()
            return self._together
        self._start_coalescing()
        try:
            for call in calls:
                call()
        except BaseException:
            _finish(self._end_coalescing())
            raise
        work = self._end_coalescing()
        work.outcome[:] = result
        return work

    def _op(self, op: Any, tensor: torch.Tensor, operation: str) -> tuple[int, torch.Tensor]:
        kind = getattr(op, "op", op)
        code = _OPS.get(kind)
        if code is not None:
            return code, tensor
        if kind == _Op.PREMUL_SUM:
            return _codes.SUM, tensor * op.factor
        raise TypeError(f"{operation}: the backend raygo has no {kind}")

    # ---- reductions

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work | None:
        """Every rank gets the reduction of all ranks' tensors in place of its own."""
        tensor = _only(tensors, "allreduce")
        if tensor.is_contiguous() and tensor.device.type == "cpu" and (op := _OPS.get(opts.reduceOp.op)) is not None:
            size = tensor.numel()
            if self._adopting and size * tensor.itemsize >= _ADOPT_BYTES:
                self._adopt(tensor, sys.getrefcount(tensor))
            address = tensor.data_ptr()
            return self._call("allreduce", (address, address, size, _code(tensor.dtype, "allreduce"), op), tensors, tensor, opts)
        into = _Into("allreduce")
        held = into(tensor, read=True)
        op, source = self._op(opts.reduceOp, held, "allreduce")
        return self._call("allreduce", (source.data_ptr(), held.data_ptr(), held.numel(), _code(held.dtype, "allreduce"), op), tensors, (source, held),
                          opts, into)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Work | None:
        """`allreduce` of several tensors."""
        return self._all(tensors, opts, [lambda t=t: self.allreduce([t], opts) for t in tensors])  # type: ignore[misc]

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work | None:
        """The root gets the reduction of all ranks' tensors in place of its own."""
        into = _Into("reduce")
        held = into(_only(tensors, "reduce"), read=True)
        op, source = self._op(opts.reduceOp, held, "reduce")
        arguments = (source.data_ptr(), held.data_ptr(), held.numel(), _code(held.dtype, "reduce"), op, opts.rootRank)
        return self._call("reduce", arguments, tensors, (source, held), opts, into if self.rank() == opts.rootRank else None)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work | None:
        """Every rank gets its piece of the reduction."""
        into = _Into("reduce_scatter")
        output, pieces = into(_only(outputs, "reduce_scatter")), [_plain(t, "reduce_scatter").contiguous() for t in _only(inputs, "reduce_scatter")]
        made = [self._op(opts.reduceOp, piece, "reduce_scatter") for piece in pieces]
        blocks = [(source.data_ptr(), source.numel()) for _, source in made]
        code = _code(output.dtype, "reduce_scatter")
        return self._call("reducescatter", (blocks, output.data_ptr(), output.numel(), code, made[0][0]), outputs, (output, made), opts, into)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work | None:
        """Every rank gets its piece of the reduction of one tensor with all pieces."""
        into = _Into("reduce_scatter_tensor")
        held = into(output)
        op, source = self._op(opts.reduceOp, _plain(input, "reduce_scatter_tensor").contiguous(), "reduce_scatter_tensor")
        _whole(source, held, self.size(), "reduce_scatter_tensor", "input", "output")
        arguments = (source.data_ptr(), held.data_ptr(), held.numel(), _code(held.dtype, "reduce_scatter_tensor"), op)
        return self._call("reducescatter", arguments, [output], (source, held), opts, into)

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Work | None:
        """`reduce_scatter_single` of several tensors."""
        return self._all(outputs, opts, [lambda o=o, i=i: self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])  # type: ignore[misc]

    # ---- moving

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work | None:
        """Every rank gets the root's tensor."""
        into = _Into("broadcast")
        held = into(_only(tensors, "broadcast"), read=True)
        return self._call("broadcast", (held.data_ptr(), *_moved(held), opts.rootRank), tensors, held, opts, into)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work | None:
        """Every rank gets all ranks' tensors, which may differ in size."""
        into = _Into("all_gather")
        source = _plain(_only(inputs, "all_gather"), "all_gather").contiguous()
        held = [into(t) for t in _only(outputs, "all_gather")]
        count, code = _moved(source)
        return self._call("allgather", (source.data_ptr(), [(t.data_ptr(), _moved(t)[0]) for t in held], count, code), outputs[0], (source, held), opts, into)

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work | None:
        """`allgather` of several tensors: outputs[rank][i]."""
        calls = [lambda i=i, t=t: self.allgather([[own[i] for own in outputs]], [t], opts) for i, t in enumerate(inputs)]  # type: ignore[misc]
        return self._all([t for own in outputs for t in own], opts, calls)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work | None:
        """Every rank gets all ranks' tensors in one."""
        into = _Into("all_gather_into_tensor")
        held, source = into(output), _plain(input, "all_gather_into_tensor").contiguous()
        _whole(held, source, self.size(), "all_gather_into_tensor", "output", "input")
        return self._call("allgather", (source.data_ptr(), held.data_ptr(), *_moved(source)), [output], (source, held), opts, into)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Work | None:
        """`all_gather_single` of several tensors."""
        return self._all(outputs, opts, [lambda o=o, i=i: self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])  # type: ignore[misc]

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work | None:
        """The root gets all ranks' tensors."""
        into = _Into("gather")
        source = _plain(_only(inputs, "gather"), "gather").contiguous()
        held = [into(t) for t in _only(outputs, "gather")] if self.rank() == opts.rootRank else []
        blocks: Any = [(t.data_ptr(), _moved(t)[0]) for t in held] or 0
        return self._call("gather", (source.data_ptr(), blocks, *_moved(source), opts.rootRank), outputs[0] if outputs else [], (source, held), opts, into)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work | None:
        """Every rank gets its one of the root's tensors."""
        into = _Into("scatter")
        held = into(_only(outputs, "scatter"))
        pieces = [_plain(t, "scatter").contiguous() for t in _only(inputs, "scatter")] if self.rank() == opts.rootRank else []
        blocks: Any = [(t.data_ptr(), _moved(t)[0]) for t in pieces] or 0
        return self._call("scatter", (blocks, held.data_ptr(), *_moved(held), opts.rootRank), outputs, (held, pieces), opts, into)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Work | None:
        """Rank r gets the r-th tensor of every rank."""
        into = _Into("all_to_all")
        sources, held = [_plain(t, "all_to_all").contiguous() for t in inputs], [into(t) for t in outputs]
        given, taken = ([(t.data_ptr(), _moved(t)[0]) for t in tensors] for tensors in (sources, held))
        return self._call("alltoall", (given, taken, 0, _moved(sources[0])[1]), outputs, (sources, held), opts, into)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_splits: list[int], input_splits: list[int], opts: Any) -> Work | None:
        """Rank r gets the r-th part of every rank's tensor; parts are counted in rows."""
        into = _Into("all_to_all_single")
        held, source, size = into(output), _plain(input, "all_to_all_single").contiguous(), self.size()
        count, code = _moved(source)
        if not output_splits and not input_splits:
            if count % size or _moved(held)[0] != count:
                raise ValueError(f"all_to_all_single: tensors of {tuple(input.shape)} and {tuple(output.shape)} cannot be parted evenly among {size} ranks: "
                                 "give tensors of one size that is a multiple, or split sizes")
            return self._call("alltoall", (source.data_ptr(), held.data_ptr(), count // size, code), [output], (source, held), opts, into)
        arguments = (_rows(source, input_splits, size, "input"), _rows(held, output_splits, size, "output"), 0, code)
        return self._call("alltoall", arguments, [output], (source, held), opts, into)

    # ---- from one to another

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Work | None:
        """Send a tensor to a rank."""
        source = _plain(_only(tensors, "send"), "send").contiguous()
        return self._call("send", (source.data_ptr(), *_moved(source), peer, tag), tensors, source, None)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Work | None:
        """Receive a tensor from a rank."""
        into = _Into("recv")
        held = into(_only(tensors, "recv"))
        return self._call("recv", (held.data_ptr(), *_moved(held), peer, tag), tensors, held, None, into)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work | None:
        """Receive a tensor from whoever sends one."""
        return self.recv(tensors, -1, tag)

    # ---- meeting

    def barrier(self, opts: Any) -> Work | None:
        """Wait until all ranks are here."""
        return self._call("barrier", (), [], None, opts)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks are here; if one is not in time, all that are say which."""
        self._barriers.monitored(self._group, self._limit(opts), wait_all_ranks, _BARRIER_TAG)

    # ---- several calls as one

    @property
    def supports_coalescing(self) -> bool:
        """Yes."""
        return True

    def start_coalescing(self) -> None:
        """What is called from now on is waited for as one."""
        if self._together is not None:
            _finish(self._end_coalescing())     # an exception ended it where torch does not tell
        self._together = Started([], self._futures.submit)

    def end_coalescing(self) -> Started:
        """What to wait for."""
        work, self._together = self._together, None
        if work is None:
            raise RuntimeError("this process group is not coalescing")
        work.part_ended()       # the part that held it open
        return work

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    # ---- about itself

    def getBackendName(self) -> str:
        """What `init_process_group` calls it."""
        return NAME

    def name(self) -> str:
        """The same."""
        return NAME

    @property
    def options(self) -> Any:
        """The time limit."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """How long calls from now on may take."""
        self._timeout = timeout.total_seconds()
        self._options._timeout = timeout

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        pass

    def get_error(self) -> Any:
        """Whether the group still works."""
        from torch._C._distributed_c10d import ErrorType

        return ErrorType.SUCCESS if self._group.broken() is None else ErrorType.REMOTE_ERROR

    def abort(self) -> None:
        """End everything that is under way, on all ranks."""
        self._group.abort("torch.distributed was told to abort the process group")

    def shutdown(self) -> None:
        """Leave the group."""
        self._group.close()
        self._futures.shutdown(wait=False)

    # ---- gradients in memory that all ranks see

    def _adopt(self, tensor: torch.Tensor, references: int) -> None:
        """Move a bucket of gradients into the group's memory, where it is reduced without copies from now on.

        Torch's own way for a backend to allocate buckets (`allocate_tensor`) cannot be overridden in Python (2.15).  So the memory is changed below the
        storage, which all views share, the first time that the bucket comes.  Only memory that no Python object can know is changed: a tensor that comes out
        of the backward pass and that nobody but this call refers to.
        """
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if address in self._adopted or references > self._bucket_references or torch._C._current_graph_task_id() < 0:
            return
        if size != tensor.numel() * tensor.itemsize:
            return
        try:
            shared = torch.frombuffer(self._group.alloc(size), dtype=torch.uint8)
        except (_binding.GroupError, MemoryError):
            self._adopting = False      # no room: they are copied, as they are without this
            return
        shared.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
        storage._swap_data_ptr_(shared.untyped_storage())
        self._adopted.add(storage.data_ptr())


def _finish(work: Started) -> None:
    """Wait for calls that an exception left behind, whose tensors are their caller's again; how they end is less than what was raised."""
    with contextlib.suppress(_binding.GroupError):
        work.wait()


def _whole(whole: torch.Tensor, piece: torch.Tensor, size: int, operation: str, of_whole: str, of_piece: str) -> None:
    if whole.numel() != piece.numel() * size or whole.dtype != piece.dtype:
        raise ValueError(f"{operation}: {of_whole} has {whole.numel()} × {whole.dtype} and {of_piece} {piece.numel()} × {piece.dtype}: "
                         f"with {size} ranks {of_whole} must have {size} times as many of the same type")


def _rows(tensor: torch.Tensor, splits: list[int], size: int, which: str) -> list[tuple[int, int]]:
    """Blocks of so many rows each."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise ValueError(f"all_to_all_single: {rows} rows of {which} cannot be parted evenly among {size} ranks: give {which}_split_sizes")
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise ValueError(f"all_to_all_single: {which}_split_sizes {splits} do not add up to the {rows} rows of {which} for {size} ranks")
    count, _ = _moved(tensor)
    per_row = count // rows if rows else 0
    step = tensor.numel() * tensor.element_size() // rows if rows else 0
    blocks, address = [], tensor.data_ptr()
    for n in splits:
        blocks.append((address, n * per_row))
        address += n * step
    return blocks


def empty(*size: int, dtype: torch.dtype | None = None, group: Any = None) -> torch.Tensor:
    """A tensor in the memory that all ranks of a node see: it is reduced in place, without copies.

    Parameters
    ----------
    *size : int
        Its shape.
    dtype : torch.dtype, optional
        torch's default type else.
    group : ProcessGroup, optional
        The group that it will be used in; the default one else.

    Examples
    --------
    >>> gradients = empty(1_000_000)                            # doctest: +SKIP
    >>> torch.distributed.all_reduce(gradients)                 # doctest: +SKIP
    """
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))
    if not isinstance(backend, RaygoBackend):
        raise ValueError(f"the group's backend for the CPU is {backend.name()}: only one made with init_process_group('raygo') has memory of its own")
    dtype = dtype or torch.get_default_dtype()
    count = math.prod(size)
    if not count:
        return torch.empty(size, dtype=dtype)
    return torch.frombuffer(backend._group.alloc(count * dtype.itemsize), dtype=dtype).reshape(size)


_registering = threading.Lock()


def _create(options: Any, pg_options: Any = None) -> RaygoBackend:
    """What torch calls for each new process group."""
    timeout = options.timeout or timedelta(minutes=30)
    store = options.store
    number = agree(store, options.group_id, options.group_rank, options.group_size, timeout.total_seconds())
    name = f"torch-{options.group_id}-{number}"
    group = _binding.Group(name, options.group_rank, options.group_size, GroupStore(store), timeout=timeout.total_seconds(), library=_codes.library())
    return RaygoBackend(group, timeout)


def register_backend() -> None:
    """Make the backend ``raygo`` known to torch.distributed; does nothing the second time.

    Examples
    --------
    >>> register_backend()
    >>> torch.distributed.init_process_group("raygo")                 # doctest: +SKIP
    """
    with _registering:
        if NAME.upper() in dist.Backend._plugins:
            return
        let_torch_ask()
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
