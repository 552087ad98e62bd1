"""Values that the binding's own pickler does not take: functions, classes, instances, tensors, tables.

The binding calls `serialize` for anything but plain values, and `deserialize` for formats other than pickle. What is written is an ordinary
pickle of protocol 5 with its large buffers beside it, so that arrays come back as views on shared memory. cloudpickle adds what pickle
lacks; it and the libraries whose types have a way of their own are imported only when a value needs them.

Tensors come back writable although the memory is shared: their storage is mapped copy-on-write, so that reading copies nothing and
writing stays in the process that writes.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

from raygo import _binding

FORMAT_PICKLE, FORMAT_ARROW = 1, 4  # rg_blob_format
_MAX_BUFFERS = 65535  # what a blob's header can count
_MAX_RULES = 1000
VALUE, ARGUMENTS, ARGUMENTS_KW = 0, 1, 2  # rb_ser_what

_reducers: dict[type, Callable[[Any, Any], Any]] = {}  # exact type -> reducer(pickler, value)
_custom: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
_rules: dict[type, bytes] = {}  # of _custom, as they travel
_learned: dict[bytes, tuple[Any, Any, Callable[[Any], Any]]] = {}  # rules that came, by what they are pickled as
_torch_known = _arrow_known = False
_Pickler: Any = None


def _pickler() -> Any:
    """The pickler class; made at first use, because cloudpickle takes 50 ms to import."""
    global _Pickler
    if _Pickler is None:
        import cloudpickle

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            """cloudpickle, with reducers of our own before its."""

            dispatch_table = ChainMap({types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)
            storages: dict[int, Any]  # of tensors in this value, so that those that share memory still do
            dump_apart = staticmethod(_dump)

            def reducer_override(self, obj: Any) -> Any:
                reducer = _reducers.get(type(obj))
                if reducer is not None:
                    reduced = reducer(self, obj)
                    if reduced is not NotImplemented:
                        return reduced
                return super().reducer_override(obj)

        _Pickler = Pickler
    return _Pickler


def _reduce_code(code: types.CodeType) -> Any:
    """As cloudpickle's, with the file's name in it, which newer versions leave out: remote tracebacks need it to show the source."""
    import cloudpickle

    make, fields = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return make, tuple(code.co_filename if field == "<dynamic-code>" else field for field in fields)


def serialize(value: Any, what: int = VALUE) -> tuple[int, Any, list[Any], int]:
    """Turn any value into (format, body, buffers, how many of the buffers are parts of the first one).

    Parameters
    ----------
    value
        The value.
    what
        `VALUE`; `ARGUMENTS` of a call, or `ARGUMENTS_KW`, a pair of them and the keywords: for messages.

    Raises
    ------
    TypeError
        It cannot be pickled; the message says what in it cannot.
    """
    _learn()
    if "pyarrow" in sys.modules and what == VALUE and type(value) not in _custom:
        stored = _as_arrow(value)
        if stored is not None:
            return stored
    buffers: list[Any] = []
    body = _dump(value, buffers.append, what)
    if len(buffers) > _MAX_BUFFERS:
        return FORMAT_PICKLE, _dump(value, None, what), [], 0
    return FORMAT_PICKLE, body, buffers, 0


def _as_arrow(value: Any) -> tuple[int, Any, list[Any], int] | None:
    """A table, or what else is whole Arrow data; None: it is none, or one that a stream cannot hold."""
    from raygo import _arrow

    kind = _arrow.kind_of(value)
    if kind is None:
        return None
    import pyarrow as pa

    try:
        body, parts, buffers = _arrow.write(value, kind, _dump)
    except pa.ArrowException:  # pickle takes them
        return None
    return FORMAT_ARROW, body, [*parts, *buffers], len(parts)


def dumps(value: Any) -> bytes:
    """One self-contained pickle of any value."""
    _learn()
    return bytes(_dump(value, None))


loads = pickle.loads


def _dump(value: Any, out_of_band: Callable[[Any], Any] | None, what: int = VALUE) -> Any:
    file = io.BytesIO()
    pickler = _pickler()(file, protocol=5, buffer_callback=out_of_band)
    pickler.storages = {}
    try:
        pickler.dump(value)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        raise _refusal(value, error, what) from error
    return file.getbuffer()


def _refusal(value: Any, error: Exception, what: int) -> TypeError:
    from raygo._capture import blame, travels

    words, way = "", ""
    try:
        if what != VALUE:
            args, named = (value, {}) if what == ARGUMENTS else value
            given = [*((f"argument {i}", arg) for i, arg in enumerate(args)), *((f"argument {name!r}", arg) for name, arg in named.items())]
            words, value = next((pair for pair in given if not travels(pair[1])), ("", value))
        way = blame(value)
    except Exception as unknown:  # the search walks through the user's objects, whose attributes may raise anything
        way = f"(looking for it failed: {unknown})"
    where = f" What stands in the way: {way}." if way else ""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return TypeError(
        f"{f'The call has a {name} as {words}, which' if words else f'A {name}'} cannot be sent to another process: {str(error).rstrip('.')}.{where} "
        "Make it where it is used, pass what it is made from, or teach raygo by raygo.util.register_serializer()."
    )


def deserialize(format: int, body: Any, buffers: list[Any]) -> Any:
    """Read a value whose format is not the binding's own."""
    if format == FORMAT_ARROW:
        from raygo import _arrow

        return _arrow.read(body, buffers)
    raise ValueError(f"an object has format {format}, which this version of raygo does not know")


# ---- what users register


def register(cls: type, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Send values of exactly this class as what `serializer` makes of them."""
    _custom[cls] = serializer, deserializer
    _rules.pop(cls, None)
    _reducers[cls] = _reduce_custom
    _binding.set_types(array_path=not _touches_arrays())


def deregister(cls: type) -> None:
    """Undo `register`."""
    global _torch_known, _arrow_known
    if _custom.pop(cls, None) is not None:
        del _reducers[cls]
        _rules.pop(cls, None)
        _torch_known = _arrow_known = False  # it may have stood before a reducer of ours
    _binding.set_types(array_path=not _touches_arrays())


def _touches_arrays() -> bool:
    numpy = sys.modules.get("numpy")
    kinds = tuple(getattr(numpy, name, ()) for name in ("ndarray", "generic"))  # nothing while another thread imports it
    return any(issubclass(cls, kinds) for cls in _custom)


def _reduce_custom(pickler: Any, value: Any) -> Any:
    entry = _custom.get(type(value))
    if entry is None:
        return NotImplemented
    rules = _rules.get(type(value))
    if rules is None:
        rules = _rules[type(value)] = _pack_rules(type(value), *entry)
    return _rebuild_custom, (rules, entry[0](value))


def _pack_rules(cls: type, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> bytes:
    try:
        return dumps((cls, serializer, deserializer))
    except TypeError:  # the deserializer alone is enough to read a value; a worker that sends one on has to be told how
        return dumps((None, None, deserializer))


def _rebuild_custom(rules: bytes, data: Any) -> Any:
    """Read a value by rules that came with it. A worker keeps them, so that it can also send such values."""
    known = _learned.get(rules)
    if known is None:
        if len(_learned) >= _MAX_RULES:  # a notebook that registers in every run of a cell
            _learned.clear()
        known = _learned[rules] = loads(rules)
        cls, serializer, deserializer = known
        if cls is not None and cls not in _custom and _binding.is_worker():
            register(cls, serializer, deserializer)
    return known[2](data)


def _learn() -> None:
    """Add the reducers for libraries that have been imported since."""
    global _arrow_known
    if not _torch_known and "torch" in sys.modules:
        _learn_torch()
    if not _arrow_known and "pyarrow" in sys.modules:
        from raygo import _arrow

        _arrow_known = _arrow.learn(_reducers)


# ---- torch


def _learn_torch() -> None:
    """Add reducers for tensors once torch is there."""
    global _torch_known
    torch = sys.modules["torch"]
    parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
    if parameter is None:  # still being imported by another thread
        return
    _torch_known = True
    _reducers.setdefault(torch.Tensor, _reduce_tensor)
    _reducers.setdefault(parameter, _reduce_tensor)


class _Storage:
    """Stands for a tensor's storage in the pickle: the same object for all tensors of the value that share it."""

    __slots__ = ("storage",)

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __reduce__(self) -> tuple[Any, ...]:
        size = self.storage.nbytes()
        if not size:
            return _load_storage, (b"",)
        import ctypes

        memory = (ctypes.c_char * size).from_address(self.storage.data_ptr())
        return _load_storage, (PickleBuffer(memory),)


def _reduce_tensor(pickler: Any, tensor: Any) -> Any:
    import torch

    plain = (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.__dict__
        and not tensor._backward_hooks
    )
    if not plain:
        return NotImplemented
    storage = tensor.untyped_storage()
    holder = pickler.storages.get(storage._cdata)
    if holder is None:
        holder = pickler.storages[storage._cdata] = _Storage(storage)
    parameter = type(tensor) is not torch.Tensor
    return _load_tensor, (holder, tensor.dtype, tensor.storage_offset(), tuple(tensor.size()), tensor.stride(), tensor.requires_grad, parameter)


def _load_storage(data: Any) -> Any:
    import torch

    if not len(data):
        return torch.UntypedStorage(0)
    memory = data.private() if isinstance(data, _binding.Buffer) else bytearray(data)
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def _load_tensor(storage: Any, dtype: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool, parameter: bool) -> Any:
    import torch

    tensor = torch.empty(0, dtype=dtype).set_(storage, offset, size, stride)
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor
