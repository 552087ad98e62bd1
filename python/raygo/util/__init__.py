"""Helpers on top of tasks and actors: pools, queues, placement groups, metrics, the state of the session.

The names below are loaded at their first use, so that `import raygo.util` costs nothing.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.util import accelerators, collective
    from raygo.util import rpdb as pdb
    from raygo.util._services import get_node_instance_id, get_node_ip_address, list_named_actors
    from raygo.util.actor_pool import ActorPool
    from raygo.util.check_serialize import inspect_serializability
    from raygo.util.client_connect import connect, disconnect
    from raygo.util.debug import disable_log_once_globally, enable_periodic_logging, log_once
    from raygo.util.helpers import as_completed, map_unordered
    from raygo.util.placement_group import get_current_placement_group, get_placement_group, placement_group_table, remove_placement_group
    from raygo.util.serialization import deregister_serializer, register_serializer

_WHERE = {
    "ActorPool": "actor_pool",
    "as_completed": "helpers",
    "connect": "client_connect",
    "deregister_serializer": "serialization",
    "disable_log_once_globally": "debug",
    "disconnect": "client_connect",
    "enable_periodic_logging": "debug",
    "get_current_placement_group": "placement_group",
    "get_node_instance_id": "_services",
    "get_node_ip_address": "_services",
    "get_placement_group": "placement_group",
    "inspect_serializability": "check_serialize",
    "list_named_actors": "_services",
    "log_once": "debug",
    "map_unordered": "helpers",
    "placement_group_table": "placement_group",
    "register_serializer": "serialization",
    "remove_placement_group": "placement_group",
}
# Bound at once: the import of the module of that name would otherwise put itself in the place of the function.
from raygo.util.placement_group import placement_group as placement_group  # noqa: E402

_MODULES = {"accelerators": "accelerators", "collective": "collective", "pdb": "rpdb"}

__all__ = ["ActorPool", "accelerators", "as_completed", "collective", "connect", "deregister_serializer", "disable_log_once_globally",
           "disconnect", "enable_periodic_logging", "get_current_placement_group", "get_node_instance_id", "get_node_ip_address",
           "get_placement_group", "inspect_serializability", "list_named_actors", "log_once", "map_unordered", "pdb",
           "placement_group", "placement_group_table", "register_serializer", "remove_placement_group"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
