"""Several actors of one class, called together."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import raygo
from raygo.util.annotations import Deprecated

T = TypeVar("T")

__all__ = ["ActorConfig", "ActorGroup", "ActorGroupMethod", "ActorWrapper", "T"]


@dataclass
class ActorWrapper:
    """An actor of the group and what is known of it."""

    actor: Any
    metadata: dict[str, Any]


@dataclass
class ActorConfig:
    """How the actors are made."""

    num_cpus: float
    num_gpus: float
    resources: dict[str, float] | None
    init_args: tuple[Any, ...]
    init_kwargs: dict[str, Any]


class ActorGroupMethod:
    """A method of all actors: ``group.method.remote(...)`` gives a reference for each."""

    def __init__(self, actor_group: ActorGroup, method_name: str) -> None:
        self.actor_group = actor_group
        self._name = method_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"ActorGroup methods cannot be called directly. Instead of 'object.{self._name}()', try 'object.{self._name}.remote()'.")

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Call the method of each actor."""
        return [getattr(wrapper.actor, self._name).remote(*args, **kwargs) for wrapper in self.actor_group.actors]


@Deprecated(message="Keep a list of actors and call each of them.")
class ActorGroup:
    """Actors of one class.

    Parameters
    ----------
    actor_cls : type
        The class, not decorated.
    num_actors : int
        How many.
    num_cpus_per_actor, num_gpus_per_actor, resources_per_actor
        What each needs.
    init_args, init_kwargs
        Passed to each constructor.
    """

    def __init__(self, actor_cls: type, num_actors: int = 1, num_cpus_per_actor: float = 1, num_gpus_per_actor: float = 0,
                 resources_per_actor: dict[str, float] | None = None, init_args: tuple[Any, ...] | None = None,
                 init_kwargs: dict[str, Any] | None = None) -> None:
        if num_actors <= 0:
            raise ValueError(f"The provided `num_actors` must be greater than 0. Received num_actors={num_actors} instead.")
        if num_cpus_per_actor < 0 or num_gpus_per_actor < 0:
            raise ValueError("The number of CPUs or GPUs per actor must not be negative. "
                             f"Received num_cpus_per_actor={num_cpus_per_actor} and num_gpus_per_actor={num_gpus_per_actor}.")
        self.actor_config = ActorConfig(num_cpus_per_actor, num_gpus_per_actor, resources_per_actor, init_args or (), init_kwargs or {})
        self.num_actors = num_actors
        self.actors: list[ActorWrapper] = []
        self._cls = raygo.remote(num_cpus=num_cpus_per_actor, num_gpus=num_gpus_per_actor, resources=resources_per_actor)(_with_metadata(actor_cls))
        self.start()

    def __getattr__(self, item: str) -> ActorGroupMethod:
        if item.startswith("_"):
            raise AttributeError(item)
        return ActorGroupMethod(self, item)

    def __len__(self) -> int:
        return len(self.actors)

    def __getitem__(self, item: int) -> Any:
        return self.actors[item]

    def start(self) -> None:
        """Make the actors."""
        if self.actors:
            raise RuntimeError("The actors have already been started. Please call `shutdown` first if you want to restart them.")
        self.add_actors(self.num_actors)

    def shutdown(self, patience_s: float = 5) -> None:
        """End the actors, by force when they take longer than `patience_s` seconds."""
        ending = [wrapper.actor.__ray_terminate__.remote() for wrapper in self.actors]
        if patience_s > 0 and ending:
            raygo.wait(ending, num_returns=len(ending), timeout=patience_s)
        for wrapper in self.actors:
            raygo.kill(wrapper.actor)
        self.actors = []

    def remove_actors(self, actor_indexes: list[int]) -> None:
        """Take actors out of the group; they end when nobody else holds them."""
        self.actors = [wrapper for index, wrapper in enumerate(self.actors) if index not in set(actor_indexes)]

    def add_actors(self, num_actors: int) -> None:
        """Make more actors."""
        fresh = [self._cls.remote(*self.actor_config.init_args, **self.actor_config.init_kwargs) for _ in range(num_actors)]
        metadata = raygo.get([actor._actor_group_metadata.remote() for actor in fresh])
        self.actors += [ActorWrapper(actor, data) for actor, data in zip(fresh, metadata, strict=True)]

    @property
    def actor_metadata(self) -> list[dict[str, Any]]:
        """Node, host and process of each."""
        return [wrapper.metadata for wrapper in self.actors]


def _with_metadata(cls: type) -> type:
    def _actor_group_metadata(self: Any) -> dict[str, Any]:
        import os
        import socket

        return {"node_id": raygo.get_runtime_context().get_node_id(), "hostname": socket.gethostname(), "pid": os.getpid()}

    return type(cls.__name__, (cls,), {"_actor_group_metadata": _actor_group_metadata, "__module__": cls.__module__})
