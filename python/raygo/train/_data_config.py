"""Which worker gets which rows of the datasets that a trainer was given."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal


class DataConfig:
    """How datasets are handed to the workers.

    Parameters
    ----------
    datasets_to_split : "all" or list of str
        The datasets of which each worker gets a part of its own, all with the same number of rows; of the others each gets all rows.
    execution_options : optional
        Not before raygo.data has them.
    enable_shard_locality : bool
        Taken for compatibility.

    Examples
    --------
    >>> DataConfig(datasets_to_split=["train"])           # doctest: +SKIP
    """

    def __init__(self, datasets_to_split: Literal["all"] | list[str] = "all", execution_options: Any = None, enable_shard_locality: bool = True) -> None:
        if not isinstance(datasets_to_split, list) and datasets_to_split != "all":
            raise TypeError(f"DataConfig: `datasets_to_split` should be 'all' or a list of the datasets' names, not {datasets_to_split!r}")
        if execution_options is not None:
            raise NotImplementedError("DataConfig(execution_options=...) is not there yet in raygo.data")
        self._datasets_to_split = datasets_to_split

    def configure(self, datasets: Mapping[str, Any], world_size: int, worker_handles: list[Any] | None = None,
                  worker_node_ids: list[str] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        """The datasets of each rank, `raygo.data.DataIterator` by name; a subclass may decide otherwise."""
        if self._datasets_to_split != "all":
            absent = sorted(set(self._datasets_to_split) - set(datasets))
            if absent:
                raise ValueError(f"DataConfig(datasets_to_split=...) names {', '.join(absent)}, but the trainer was given "
                                 f"{', '.join(sorted(datasets)) or 'no dataset'}")
        shards: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            split = self._datasets_to_split == "all" or name in self._datasets_to_split
            parts = dataset.streaming_split(world_size, equal=True) if split else [dataset.iterator()] * world_size
            for rank, part in enumerate(parts):
                shards[rank][name] = part
        return shards


def check(trainer: str, datasets: Any) -> dict[str, Any]:
    """The datasets that a trainer was given; raises for what is none."""
    if not datasets:
        return {}
    if not isinstance(datasets, dict):
        raise ValueError(f"{trainer}: `datasets` should be a dict from name to raygo.data.Dataset, found {type(datasets)} with value `{datasets}`.")
    for name, dataset in datasets.items():
        if not hasattr(dataset, "streaming_split") and not callable(dataset):
            raise ValueError(f"{trainer}: the dataset {name!r} is a {type(dataset).__name__}: give a raygo.data.Dataset, or a function that makes one")
    return dict(datasets)


def materialize(datasets: Mapping[str, Any]) -> dict[str, Any]:
    """Run the datasets' plans, before workers take the CPUs that their tasks need."""
    made = {name: dataset() if callable(dataset) else dataset for name, dataset in datasets.items()}
    return {name: dataset.materialize() for name, dataset in made.items()}
