"""The numbers by which `_binding.Group` knows types and operations (collective/collective.h), and where it finds what joins several nodes."""
from __future__ import annotations

import os

# By the name that NumPy and torch give a type.
DTYPES = {
    "int8": 0, "uint8": 1, "int16": 2, "uint16": 3, "int32": 4, "uint32": 5, "int64": 6, "uint64": 7,
    "float16": 8, "bfloat16": 9, "float32": 10, "float64": 11, "bool": 12,
}  # fmt: skip
BYTE = DTYPES["uint8"]

SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


def library() -> str:
    """Path of the library that joins several nodes; opened for such groups only."""
    import raygo

    return os.path.join(os.path.dirname(raygo.__file__), "libraygo_collective.so")
