"""Arrays for the tests of collectives: numbers of the core's types and operations, and the same operations by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES = {
    "int8": 0,
    "uint8": 1,
    "int16": 2,
    "uint16": 3,
    "int32": 4,
    "uint32": 5,
    "int64": 6,
    "uint64": 7,
    "float16": 8,
    "bfloat16": 9,
    "float32": 10,
    "float64": 11,
    "bool": 12,
}
OPS = {"sum": 0, "avg": 1, "product": 2, "min": 3, "max": 4, "band": 5, "bor": 6, "bxor": 7}
FLOATS = ("float16", "bfloat16", "float32", "float64")


def pairs() -> list[tuple[str, str]]:
    """Types and operations that go together."""
    return [(d, o) for d in DTYPES for o in OPS if not (d in FLOATS and o.startswith("b")) and not (d == "bool" and o == "avg")]


def to_bfloat16(values: Any) -> Any:
    """Float32 to the upper halves, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(halves: Any) -> Any:
    return (np.asarray(halves, np.uint16).astype(np.uint32) << 16).view(np.float32)


def make(rng: Any, dtype: str, n: int) -> Any:
    """Random numbers of a type, over and over where there are many; bfloat16 as uint16."""
    period = 1009  # divides no size of a chunk
    if n > period:
        return np.resize(make(rng, dtype, period), n)
    if dtype == "bfloat16":
        return to_bfloat16(rng.standard_normal(n).astype(np.float32))
    if dtype in FLOATS:
        return rng.standard_normal(n).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, n, dtype, endpoint=True)


def wide(a: Any, dtype: str) -> Any:
    """As what it is added up in."""
    if dtype == "bfloat16":
        return from_bfloat16(a)
    return a.astype(np.float32) if dtype == "float16" else a


def narrow(a: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return to_bfloat16(a)
    return a.astype(np.float16) if dtype == "float16" else a


def reduced(arrays: list[Any], dtype: str, op: str) -> Any:
    """The reduction by NumPy, in the order of ranks."""
    if dtype == "bool":
        f = {"sum": np.logical_or, "max": np.logical_or, "bor": np.logical_or, "bxor": np.logical_xor}.get(op, np.logical_and)
    else:
        f = {"product": np.multiply, "min": np.minimum, "max": np.maximum, "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}.get(op, np.add)
    with np.errstate(all="ignore"):
        total = wide(arrays[0], dtype)
        for a in arrays[1:]:
            total = f(total, wide(a, dtype))
        if op == "avg":
            n = len(arrays)
            if dtype in FLOATS:
                total = (total / total.dtype.type(n)).astype(total.dtype)
            else:  # towards zero, unlike NumPy's //
                total = np.array([abs(int(v)) // n * (1 if v >= 0 else -1) for v in total], total.dtype)
        return narrow(total, dtype)


def same(a: Any, b: Any) -> bool:
    """Bit for bit, but for NaN, which is NaN."""
    if a.dtype.kind == "f":
        return bool(np.array_equal(a, b, equal_nan=True))
    return bool(np.array_equal(a, b))


def at(a: Any) -> int:
    return int(a.ctypes.data)
