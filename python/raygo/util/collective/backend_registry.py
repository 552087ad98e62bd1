"""Backends that others bring."""
from __future__ import annotations

from typing import Any

from raygo.util.collective.collective_group.base_collective_group import BaseGroup

__all__ = ["BackendRegistry", "get_backend_registry", "register_collective_backend"]

registered: dict[str, type[BaseGroup]] = {}


class BackendRegistry:
    """The group classes by the backend's name."""

    def put(self, name: str, group_cls: type[BaseGroup]) -> None:
        """Note a class."""
        if not (isinstance(group_cls, type) and issubclass(group_cls, BaseGroup)):
            raise TypeError(f"register_collective_backend({name!r}): {group_cls!r} is no subclass of BaseGroup")
        if registered.get(name.upper(), group_cls) is not group_cls:
            raise ValueError(f"Backend {name.upper()} already registered")
        registered[name.upper()] = group_cls

    def get(self, name: str) -> type[BaseGroup]:
        """The class of a name."""
        if not self.is_registered(name):
            raise ValueError(f"Backend {name.upper()} not registered")
        return registered[name.upper()]

    def is_registered(self, name: str) -> bool:
        """Whether there is one."""
        return name.upper() in registered

    def check(self, name: str) -> bool:
        """Whether it works in this process."""
        return self.is_registered(name) and bool(registered[name.upper()].check_backend_availability())


_registry = BackendRegistry()


def get_backend_registry() -> BackendRegistry:
    """The process's one."""
    return _registry


def register_collective_backend(name: str, group_cls: Any) -> None:
    """Make a backend of one's own known to this process.

    Parameters
    ----------
    name : str
        As `init_collective_group(backend=...)` names it.
    group_cls : type
        A subclass of `BaseGroup`.
    """
    _registry.put(name, group_cls)
