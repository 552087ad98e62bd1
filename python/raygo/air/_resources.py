"""Resources that are asked for, and those that were had."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raygo.train._settings import PlacementGroupFactory

if TYPE_CHECKING:
    import numpy
    import pandas
    import pyarrow

    DataBatchType = numpy.ndarray | pyarrow.Table | pandas.DataFrame | dict[str, numpy.ndarray]
else:
    DataBatchType = Any


class ResourceRequest(PlacementGroupFactory):
    """Bundles of resources that belong together.

    Examples
    --------
    >>> ResourceRequest([{"CPU": 1}, {"CPU": 2}]).required_resources
    {'CPU': 3.0}
    """

    def to_placement_group(self) -> Any:
        """Reserve them."""
        return self()


@dataclass
class AcquiredResources:
    """Resources that a request has got.

    Parameters
    ----------
    resource_request : ResourceRequest
        The request.
    placement_group : PlacementGroup, optional
        What was reserved for it; made from the request by default.
    """

    resource_request: ResourceRequest
    placement_group: Any = None

    def annotate_remote_entities(self, entities: list[Any]) -> list[Any]:
        """Tasks and actor classes that will run in the request's bundles, one each; the first in the first."""
        from raygo.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundles = self.resource_request.bundles
        if len(entities) > len(bundles) + self.resource_request.head_bundle_is_empty:
            raise RuntimeError(f"the number of entities ({len(entities)}) exceeds the number of bundles ({len(bundles)}) of the request")
        if self.placement_group is None:
            self.placement_group = self.resource_request.to_placement_group()
        placed = []
        for index, entity in enumerate(entities):
            at = index - self.resource_request.head_bundle_is_empty
            needs = dict(bundles[at]) if at >= 0 else {}
            strategy = PlacementGroupSchedulingStrategy(self.placement_group, placement_group_bundle_index=at if at >= 0 else -1)
            placed.append(entity.options(num_cpus=needs.pop("CPU", 0), num_gpus=needs.pop("GPU", 0), resources=needs or None,
                                         scheduling_strategy=strategy))
        return placed
