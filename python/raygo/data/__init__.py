"""Datasets that feed training: rows in Arrow blocks in the object store, transformed by tasks.

`read_api.py` makes them, `dataset.py` has what can be done with one, `_plan.py` runs it, `iterator.py` reads it.  This is a first part of
Ray's interface: what is not there raises an error that names it.
"""
from __future__ import annotations

from typing import Any

from raygo.data.dataset import Dataset, MaterializedDataset, Schema
from raygo.data.iterator import DataIterator
from raygo.data.read_api import from_arrow, from_items, from_numpy, from_pandas, range, read_csv, read_json, read_parquet

__all__ = ["DataIterator", "Dataset", "MaterializedDataset", "Schema", "from_arrow", "from_items", "from_numpy", "from_pandas", "range",
           "read_csv", "read_json", "read_parquet"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'raygo.data' has no attribute {name!r}")
    raise AttributeError(f"raygo.data.{name} is not there yet in raygo; there are {', '.join(__all__)}")
