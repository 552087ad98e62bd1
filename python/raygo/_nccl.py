"""Collectives on GPUs by raygo's own path to NCCL; `raygo.util.collective` and the torch backend stand on it.

Of libraygo_collective.so (collective/lib/raygo_nccl.h). Nothing here was run on a GPU: see gpu.md.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from typing import Any

from raygo._binding import GroupError

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_KINDS = {name: i for i, name in enumerate(
    ("barrier", "allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather", "scatter", "alltoall", "send", "recv"))}


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("rank", ctypes.c_int), ("message", ctypes.c_char * 1008)]


_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_Error))
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t),
                        ctypes.POINTER(_Error))


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("rank", ctypes.c_int), ("size", ctypes.c_int), ("timeout_ns", ctypes.c_int64),
                ("store_arg", ctypes.c_void_p), ("store_set", _SET), ("store_get", _GET), ("node", ctypes.c_char_p), ("arena_bytes", ctypes.c_size_t),
                ("net_open", ctypes.c_void_p), ("net_arg", ctypes.c_void_p), ("log", ctypes.c_void_p), ("log_arg", ctypes.c_void_p)]


class _Call(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("dtype", ctypes.c_uint32), ("op", ctypes.c_uint32), ("root", ctypes.c_int32), ("tag", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("count", ctypes.c_size_t), ("src", ctypes.c_void_p), ("dst", ctypes.c_void_p), ("srcs", ctypes.c_void_p),
                ("dsts", ctypes.c_void_p)]


def candidates() -> list[str]:
    """Where NCCL may be: in NVIDIA's own package, else in torch's."""
    found = []
    for package, folder in (("nvidia.nccl", "lib"), ("torch", "lib")):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for root in (spec.submodule_search_locations or []) if spec else []:
            path = os.path.join(root, folder, "libnccl.so.2")
            if os.path.exists(path):
                found.append(path)
    return found


class NcclGroup:
    """One rank's NCCL communicator.

    Parameters
    ----------
    name, rank, size
        As of `Group`.
    store
        Has ``set(key, bytes)`` and ``get(key, timeout) -> bytes``.
    timeout
        Seconds after which what other ranks hold up is aborted.

    Notes
    -----
    Addresses (``data_ptr()``) are the GPU's; ``stream`` is ``torch.cuda.current_stream().cuda_stream``. Calls return when they are queued.
    """

    def __init__(self, name: str, rank: int, size: int, store: Any, timeout: float = 1800.0) -> None:
        self.rank, self.size, self.name = rank, size, name
        self._number = 0
        self._lib = ctypes.CDLL(os.path.join(_FOLDER, "libraygo_collective.so"))
        self._lib.raygo_nccl_run.argtypes = [ctypes.c_uint64, ctypes.POINTER(_Call), ctypes.c_void_p, ctypes.POINTER(_Error)]
        self._lib.raygo_nccl_group_end.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.POINTER(_Error)]
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        raised: list[BaseException] = []

        def put(_arg: Any, key: bytes, data: int, n: int, _err: Any) -> int:
            try:
                store.set(key.decode(), ctypes.string_at(data, n))
            except BaseException as exc:  # raised below, when Go and C are left
                raised.append(exc)
                return 8
            return 0

        def get(_arg: Any, key: bytes, timeout_ns: int, data: Any, n: Any, _err: Any) -> int:
            try:
                value = bytes(store.get(key.decode(), 1e9 if timeout_ns < 0 else timeout_ns / 1e9))
            except BaseException as exc:  # as above
                raised.append(exc)
                return 2 if isinstance(exc, TimeoutError) else 8
            data[0] = libc.malloc(len(value) + 1)
            ctypes.memmove(data[0], value, len(value))
            n[0] = len(value)
            return 0

        options = _Options(struct_size=ctypes.sizeof(_Options), name=name.encode(), rank=rank, size=size, timeout_ns=int(timeout * 1e9),
                           store_set=_SET(put), store_get=_GET(get))
        number, error = ctypes.c_uint64(), _Error()
        code = self._lib.raygo_nccl_open(ctypes.byref(options), ":".join(candidates()).encode(), ctypes.byref(number), ctypes.byref(error))
        if raised:
            raise raised[0]
        self._check(code, error)
        self._number = number.value

    @staticmethod
    def _check(code: int, error: _Error) -> None:
        if code:
            raised = GroupError(error.message.decode(errors="replace"))
            raised.code, raised.rank = code, error.rank
            raise raised

    def run(self, kind: str, src: int, dst: int, count: int, dtype: int, op: int = 0, root: int = 0, stream: int = 0) -> None:
        """Queue a call; `count`, `root` and what stands in `src` and `dst` are as in collective.h."""
        call, error = _Call(kind=_KINDS[kind], dtype=dtype, op=op, root=root, count=count, src=src, dst=dst), _Error()
        self._check(self._lib.raygo_nccl_run(self._number, ctypes.byref(call), stream, ctypes.byref(error)), error)

    def group_start(self) -> None:
        """Begin calls that NCCL is to run together."""
        error = _Error()
        self._check(self._lib.raygo_nccl_group_start(ctypes.c_uint64(self._number), ctypes.byref(error)), error)

    def group_end(self, stream: int = 0) -> None:
        """Run them."""
        error = _Error()
        self._check(self._lib.raygo_nccl_group_end(self._number, stream, ctypes.byref(error)), error)

    def broken(self) -> GroupError | None:
        """Why calls fail from now on; None: they do not."""
        error = _Error()
        try:
            self._check(self._lib.raygo_nccl_broken(ctypes.c_uint64(self._number), ctypes.byref(error)), error)
        except GroupError as why:
            return why
        return None

    def abort(self, why: str) -> None:
        """End what is queued and waits for other ranks."""
        error = _Error()
        self._check(self._lib.raygo_nccl_abort(ctypes.c_uint64(self._number), why.encode(), ctypes.byref(error)), error)

    def close(self) -> None:
        """Finish what is queued, unless the group is broken, and give the communicator back."""
        number, self._number = self._number, 0
        if number:
            error = _Error()
            self._check(self._lib.raygo_nccl_close(ctypes.c_uint64(number), ctypes.byref(error)), error)
