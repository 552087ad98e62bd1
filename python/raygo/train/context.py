"""What a training function may ask about its worker."""
from __future__ import annotations

from typing import Any

from raygo.train import _session

__all__ = ["DistributedTrainContext", "LocalTrainContext", "TrainContext", "get_context"]


class TrainContext:
    """The worker's place; see `raygo.train.get_context`.  Outside of training it is that of a group of one."""

    def _place(self, what: str) -> _session.Place:
        if _session.current is None:
            _session._outside(f"get_context().{what}()")
            return _session.Place(0, 1, 0, 1, 0)
        return _session.current.place

    def _storage(self, what: str) -> Any:
        if _session.current is None:
            _session._outside(f"get_context().{what}()")
            return None
        return _session.current.storage

    def get_world_rank(self) -> int:
        """This worker's number, from 0."""
        return self._place("get_world_rank").world_rank

    def get_world_size(self) -> int:
        """How many workers there are."""
        return self._place("get_world_size").world_size

    def get_local_rank(self) -> int:
        """This worker's number among those on its machine."""
        return self._place("get_local_rank").local_rank

    def get_local_world_size(self) -> int:
        """How many workers are on this machine."""
        return self._place("get_local_world_size").local_world_size

    def get_node_rank(self) -> int:
        """This machine's number."""
        return self._place("get_node_rank").node_rank

    def get_experiment_name(self) -> str | None:
        """The name of the run."""
        storage = self._storage("get_experiment_name")
        return storage and storage.experiment_dir_name

    def get_trial_name(self) -> str | None:
        """The name of the trial: trainer and id."""
        storage = self._storage("get_trial_name")
        return storage and storage.trial_name

    def get_trial_id(self) -> str | None:
        """The id of the trial."""
        storage = self._storage("get_trial_id")
        return storage and storage.trial_id

    def get_trial_dir(self) -> str | None:
        """The trial's folder."""
        storage = self._storage("get_trial_dir")
        return storage and storage.trial_fs_path

    def get_trial_resources(self) -> Any:
        """The bundles that the run reserves."""
        return self._place("get_trial_resources").resources

    def get_metadata(self) -> dict[str, Any]:
        """What was given to the trainer as `metadata`."""
        return dict(self._place("get_metadata").metadata)

    def get_storage(self) -> Any:
        """Where the run is stored."""
        return self._storage("get_storage")


class DistributedTrainContext(TrainContext):
    """The context of a worker of a group; every worker has it."""


class LocalTrainContext(TrainContext):
    """A place that is given, for training functions that are tried without a trainer.

    Parameters
    ----------
    experiment_name : str
        The name of the run.
    world_size, world_rank, local_rank, local_world_size, node_rank : int
        The place.

    Examples
    --------
    >>> LocalTrainContext("trial", world_size=2, world_rank=1).get_world_rank()
    1
    """

    def __init__(self, experiment_name: str, world_size: int = 1, world_rank: int = 0, local_rank: int = 0, local_world_size: int = 1,
                 node_rank: int = 0) -> None:
        self._name = experiment_name
        self._given = _session.Place(world_rank, world_size, local_rank, local_world_size, node_rank)

    def _place(self, what: str) -> _session.Place:
        return self._given

    def _storage(self, what: str) -> Any:
        raise RuntimeError(f"LocalTrainContext.{what}: without a trainer there is no storage")

    def get_experiment_name(self) -> str | None:
        """The name of the run."""
        return self._name


_context = DistributedTrainContext()


def get_context() -> TrainContext:
    """What a training function may ask about its worker.

    Examples
    --------
    >>> raygo.train.get_context().get_world_rank()       # doctest: +SKIP
    0
    """
    return _context
