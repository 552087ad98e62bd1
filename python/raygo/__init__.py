"""raygo: Ray's API on an engine written in Go.

`_api.py` has the functions, `remote_function.py` and `actor.py` what ``@remote`` makes, `_ids.py` the references, `_init.py` the session.
All of them are thin: what happens in C and Go is described by `_binding.pyi` and engine/wire/PROTOCOL.md.
Submodules and what needs them load at first use, so that the import takes tens of milliseconds and starts no thread.
"""

from __future__ import annotations

from raygo import _binding
from raygo._version import __version__

if _binding.VERSION != __version__:
    raise ImportError(
        f"raygo {__version__} found the extension of raygo {_binding.VERSION} ({_binding.__file__}): "
        "they only work together in one version. Install raygo anew."
    )

from raygo._api import (
    available_resources,
    cancel,
    client,
    cluster_resources,
    get,
    get_actor,
    get_gpu_ids,
    get_runtime_context,
    kill,
    nodes,
    put,
    remote,
    timeline,
    wait,
)
from raygo._ids import (
    ActorClassID,
    ActorID,
    FunctionID,
    JobID,
    Language,
    NodeID,
    ObjectID,
    ObjectRef,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from raygo._init import init, is_initialized, shutdown

TYPE_CHECKING = False  # see _api.py
if TYPE_CHECKING:
    from typing import Any

    from raygo import actor as actor
    from raygo import autoscaler as autoscaler
    from raygo import exceptions as exceptions
    from raygo import runtime_context as runtime_context
    from raygo import runtime_env as runtime_env
    from raygo import types as types
    from raygo import util as util
    from raygo._compat import install_as_ray
    from raygo._generator import DynamicObjectRefGenerator, ObjectRefGenerator
    from raygo._logging_config import LoggingConfig
    from raygo.actor import method
    from raygo.client_builder import ClientBuilder
    from raygo.cross_language import java_actor_class, java_function

SCRIPT_MODE, WORKER_MODE, LOCAL_MODE = 0, 1, 2

__all__ = [
    "ActorClassID",
    "ActorID",
    "ClientBuilder",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "LOCAL_MODE",
    "Language",
    "LoggingConfig",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "SCRIPT_MODE",
    "TaskID",
    "UniqueID",
    "WORKER_MODE",
    "WorkerID",
    "__version__",
    "actor",
    "autoscaler",
    "available_resources",
    "cancel",
    "client",
    "cluster_resources",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "install_as_ray",
    "is_initialized",
    "java_actor_class",
    "java_function",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "util",
    "wait",
]

_NAMES = {
    "ClientBuilder": "client_builder",
    "DynamicObjectRefGenerator": "_generator",
    "LoggingConfig": "_logging_config",
    "ObjectRefGenerator": "_generator",
    "install_as_ray": "_compat",
    "java_actor_class": "cross_language",
    "java_function": "cross_language",
    "method": "actor",
}


def __getattr__(name: str) -> Any:
    import importlib
    import importlib.util

    if name in _NAMES:
        value = getattr(importlib.import_module(f"raygo.{_NAMES[name]}"), name)
    elif name.startswith("__") or importlib.util.find_spec(f"raygo.{name}") is None:
        from raygo._api import lacks

        lacks(name)
    else:
        value = importlib.import_module(f"raygo.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _hand_over() -> None:
    """Tell the binding what it needs of the package; the functions load their modules when they are called."""
    from raygo import _api, _init

    def serialize(*args: Any) -> Any:
        from raygo._serialization import serialize as function

        _binding.set_types(serialize=function)
        return function(*args)

    def deserialize(*args: Any) -> Any:
        from raygo._serialization import deserialize as function

        _binding.set_types(deserialize=function)
        return function(*args)

    def make_error(value: Any) -> BaseException:
        from raygo.exceptions import make_error as function

        return function(value)

    def raise_syserr(data: bytes) -> BaseException:
        from raygo.exceptions import raise_syserr as function

        return function(data)

    _binding.set_types(
        ObjectRef=ObjectRef,
        serialize=serialize,
        deserialize=deserialize,
        make_error=make_error,
        raise_syserr=raise_syserr,
        auto_init=_init.auto_init,
        not_initialized=_api.not_initialized,
    )


_hand_over()
del _hand_over

for _name in __all__:
    _public = globals().get(_name)
    if getattr(_public, "__module__", "").startswith("raygo._"):
        _public.__module__ = "raygo"  # type: ignore[union-attr]  # as users know them
del _name, _public

import os as _os  # noqa: E402

if _os.environ.get("RAYGO_AS_RAY") == "1":  # set by install_as_ray(), for workers and other children
    from raygo._compat import install_as_ray

    install_as_ray()
