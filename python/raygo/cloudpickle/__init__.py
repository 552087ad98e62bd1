"""The cloudpickle that raygo pickles functions with, under Ray's name for it."""

from __future__ import annotations

import pickle
from typing import Any

from cloudpickle import CloudPickler, dump, dumps, list_registry_pickle_by_value, register_pickle_by_value, unregister_pickle_by_value
from cloudpickle.cloudpickle import dynamic_subimport, instance, is_tornado_coroutine, subimport

Pickler = CloudPickler
load, loads = pickle.load, pickle.loads

__all__ = [
    "CloudPickler",
    "Pickler",
    "dump",
    "dump_debug",
    "dumps",
    "dumps_debug",
    "dynamic_subimport",
    "instance",
    "is_tornado_coroutine",
    "list_registry_pickle_by_value",
    "load",
    "loads",
    "register_pickle_by_value",
    "subimport",
    "unregister_pickle_by_value",
]


def dumps_debug(obj: Any, *args: Any, **kwargs: Any) -> bytes:
    """As `dumps`; a TypeError says what in `obj` cannot be pickled."""
    try:
        return bytes(dumps(obj, *args, **kwargs))
    except (TypeError, pickle.PicklingError) as error:
        raise TypeError(_account(obj, error)) from error


def dump_debug(obj: Any, *args: Any, **kwargs: Any) -> None:
    """As `dump`; a TypeError says what in `obj` cannot be pickled."""
    try:
        dump(obj, *args, **kwargs)
    except (TypeError, pickle.PicklingError) as error:
        raise TypeError(_account(obj, error)) from error


def _account(obj: Any, error: Exception) -> str:
    from raygo._capture import blame

    path = blame(obj)
    return f"Could not serialize the object {obj!r}: {error}" + (f". It is reached through {path}." if path else "")
