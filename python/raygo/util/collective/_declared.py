"""Groups that were declared from outside, kept by the engine: which actor has which rank."""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from raygo._calls import call

_NAMESPACE = "raygo.util.collective"


@dataclass
class Declaration:
    """A group: the rank of each actor by its id."""

    ranks: dict[str, int]
    world_size: int
    backend: str
    timeout: int


def declare(name: str, declaration: Declaration) -> None:
    """Note a group, or raise if there is one of that name."""
    value = json.dumps(asdict(declaration)).encode()
    if not call("kv.put", {"ns": _NAMESPACE, "key": name.encode(), "value": value, "overwrite": False}):
        raise RuntimeError(f"Trying to initialize a group twice: a group {name!r} has been declared already. Call destroy_collective_group() first, "
                           "or give another group_name.")


def find(name: str) -> Declaration | None:
    """The group of a name, if it was declared."""
    value = call("kv.get", {"ns": _NAMESPACE, "key": name.encode()})
    return Declaration(**json.loads(bytes(value))) if value is not None else None


def forget(name: str) -> None:
    """Forget a group."""
    call("kv.del", {"ns": _NAMESPACE, "key": name.encode(), "prefix": False})
