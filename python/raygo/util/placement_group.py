"""Resources reserved together: bundles that are placed as a whole or not at all."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raygo import _binding
from raygo._calls import call
from raygo._ids import PlacementGroupID
from raygo._init import ensure

if TYPE_CHECKING:
    import raygo

VALID_PLACEMENT_GROUP_STRATEGIES = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
NODE_ID_LABEL_KEY = "ray.io/node-id"
_UNIT = 10_000           # the engine counts resources in 1/10000

__all__ = ["NODE_ID_LABEL_KEY", "PlacementGroup", "VALID_PLACEMENT_GROUP_STRATEGIES", "check_placement_group_index",
           "get_current_placement_group", "get_placement_group", "placement_group", "placement_group_table",
           "remove_placement_group", "validate_placement_group"]


class PlacementGroup:
    """A handle on a placement group; it can be passed to tasks.

    Parameters
    ----------
    id : PlacementGroupID
        Which group.
    bundle_cache : list of dict, optional
        Its bundles, where they are known.
    """

    def __init__(self, id: Any, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self.id = id
        self.bundle_cache = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """A group that stands for none."""
        return PlacementGroup(PlacementGroupID.nil(), [])

    @property
    def is_empty(self) -> bool:
        """Whether this stands for no group."""
        return bool(self.id.is_nil())

    @property
    def _number(self) -> int:
        """The engine's name of the group."""
        return int(self.id._number)

    def ready(self) -> raygo.ObjectRef:
        """A reference that is ready once all bundles are placed; its value is this group.

        Examples
        --------
        >>> pg = placement_group([{"CPU": 1}])          # doctest: +SKIP
        >>> raygo.get(pg.ready(), timeout=10)           # doctest: +SKIP
        PlacementGroup(...)
        """
        return _when_placed().remote(_binding.ref_from(self._number, 1), self)

    def wait(self, timeout_seconds: float | int = 30) -> bool:
        """Wait until the group is placed; False when the time is up first, or the group was removed."""
        import raygo
        from raygo.exceptions import TaskPlacementGroupRemoved

        ready, _ = raygo.wait([_binding.ref_from(self._number, 1)], timeout=timeout_seconds)
        if not ready:
            return False
        try:
            raygo.get(ready[0])
        except TaskPlacementGroupRemoved:
            return False
        return True

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The bundles, as dicts of resource to amount."""
        if self.bundle_cache is None:
            found = _rows(self._number)
            if not found:
                raise ValueError(f"placement group {self.id.hex()} is not known here: it was removed, or belongs to another session")
            self.bundle_cache = [dict(bundle) for bundle in found[0]["bundles"]]
        return self.bundle_cache

    @property
    def bundle_count(self) -> int:
        """How many bundles there are."""
        return len(self.bundle_specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"


def _same(_placed: Any, group: PlacementGroup) -> PlacementGroup:
    return group


_when_placed_task: Any = None


def _when_placed() -> Any:
    """The task behind `ready`: it needs nothing and starts when the engine says that the group is placed."""
    global _when_placed_task
    if _when_placed_task is None:
        import raygo

        _when_placed_task = raygo.remote(num_cpus=0)(_same)
    return _when_placed_task


def placement_group(bundles: Sequence[Mapping[str, float]], strategy: str | None = None, name: str = "", lifetime: str | None = None,
                    _soft_target_node_id: str | None = None, bundle_label_selector: list[dict[str, str]] | None = None,
                    topology_strategy: Any = None) -> PlacementGroup:
    """Reserve resources; returns at once, use `PlacementGroup.ready` or `wait` to know when they are there.

    Parameters
    ----------
    bundles : list of dict
        What to reserve, each bundle on one node: ``[{"CPU": 2}, {"CPU": 1, "GPU": 1}]``.
    strategy : {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
        Few nodes or many; the strict ones fail rather than compromise.  PACK when not given.
    name : str
        For `get_placement_group`; unique within the namespace.
    lifetime : {None, "detached"}
        Detached groups outlive the driver.

    Examples
    --------
    >>> pg = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")    # doctest: +SKIP
    >>> pg.wait(10)                                                        # doctest: +SKIP
    True
    """
    if bundle_label_selector:
        raise NotImplementedError("placement_group(bundle_label_selector=...) is not there yet in raygo")
    if topology_strategy:
        raise NotImplementedError("placement_group(topology_strategy=...) is not there yet in raygo")
    strategy = "PACK" if strategy is None else strategy
    validate_placement_group(bundles, strategy, lifetime, _soft_target_node_id)
    ensure()
    number = _binding.next_number()
    call("pg.create", {"pg": number, "bundles": [_units(bundle) for bundle in bundles], "strategy": strategy, "name": name,
                       "detached": lifetime == "detached"})
    return PlacementGroup(PlacementGroupID._of_number(number), [{k: float(v) for k, v in b.items() if v} for b in bundles])


def _units(bundle: Mapping[str, float]) -> dict[str, int]:
    return {key: round(amount * _UNIT) for key, amount in bundle.items() if amount}


def validate_placement_group(bundles: Sequence[Mapping[str, float]], strategy: str | None = None, lifetime: str | None = None,
                             _soft_target_node_id: str | None = None, bundle_label_selector: list[dict[str, str]] | None = None,
                             topology_strategy: Any = None) -> bool:
    """Check the arguments of `placement_group`; True, or a ValueError that says what is wrong."""
    strategy = "PACK" if strategy is None else strategy
    if strategy not in VALID_PLACEMENT_GROUP_STRATEGIES:
        raise ValueError(f"Invalid placement group strategy {strategy!r}: one of {', '.join(sorted(VALID_PLACEMENT_GROUP_STRATEGIES))}")
    if _soft_target_node_id and strategy != "STRICT_PACK":
        raise ValueError(f"_soft_target_node_id needs strategy STRICT_PACK, not {strategy}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime of a placement group is None or 'detached', not {lifetime!r}")
    if not isinstance(bundles, (list, tuple)):
        raise ValueError(f"bundles is a list of dicts, not {type(bundles).__name__}")
    if not bundles:
        raise ValueError("The placement group needs at least one bundle; `bundles` is empty")
    for index, bundle in enumerate(bundles):
        if not isinstance(bundle, Mapping):
            raise ValueError(f"bundle {index} is a {type(bundle).__name__}: bundles are dicts of resource to amount")
        for key, amount in bundle.items():
            if not isinstance(key, str):
                raise ValueError(f"bundle {index}: resource names are strings, not {key!r}")
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not math.isfinite(amount) or amount < 0:
                raise ValueError(f"bundle {index}: {amount!r} of {key} is no amount; give a number that is not negative")
            if amount > 1 and key == "GPU" and amount != int(amount):
                raise ValueError(f"bundle {index}: {amount} of GPU; above 1 only whole GPUs can be reserved")
        if not any(bundle.values()):
            raise ValueError(f"Bundles cannot be an empty dictionary or resources with only 0 values: bundle {index} is {dict(bundle)!r}")
    if bundle_label_selector is not None and len(bundle_label_selector) not in (0, 1, len(bundles)):
        raise ValueError(f"{len(bundle_label_selector)} label selectors for {len(bundles)} bundles: give one for each, or one for all")
    return True


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Give the reserved resources back; what still runs in the group is ended."""
    if placement_group is None or not isinstance(placement_group, PlacementGroup):
        raise ValueError(f"remove_placement_group takes a PlacementGroup, not {placement_group!r}")
    call("pg.remove", {"pg": placement_group._number})


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group of that name.

    Raises
    ------
    ValueError
        There is none, or it was removed.
    """
    if not placement_group_name:
        raise ValueError("Please supply a non-empty value to get_placement_group")
    number = call("pg.lookup", {"name": placement_group_name})
    if not number:
        raise ValueError(f"Failed to look up placement group with name: {placement_group_name}; it was never made or is removed")
    return PlacementGroup(PlacementGroupID._of_number(number))


def get_current_placement_group() -> PlacementGroup | None:
    """The group that the running task or actor was placed in; None outside of one and in a driver."""
    import raygo

    text = raygo.get_runtime_context().get_placement_group_id()
    return PlacementGroup(PlacementGroupID.from_hex(text)) if text else None


def _rows(number: int) -> list[dict[str, Any]]:
    return list(call("pg.table", {"pg": number}) or [])


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What the engine knows of one group, or of all by their id in hex.

    Examples
    --------
    >>> placement_group_table(pg)["state"]       # doctest: +SKIP
    'CREATED'
    """
    if placement_group is not None:
        if not isinstance(placement_group, PlacementGroup):
            raise TypeError(f"placement_group_table takes a PlacementGroup, not {placement_group!r}")
        rows = _rows(placement_group._number)
        if not rows:
            return {"placement_group_id": placement_group.id.hex(), "state": "REMOVED", "name": "", "bundles": {}, "strategy": "",
                    "bundles_to_node_id": {}, "stats": {}}
        return _row(rows[0], placement_group.id.hex())
    return {(key := PlacementGroupID._of_number(row["pg"]).hex()): _row(row, key) for row in _rows(0)}


def _row(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    nodes = row.get("bundle_nodes") or []
    return {
        "placement_group_id": key,
        "name": row.get("name", ""),
        "bundles": {i: dict(bundle) for i, bundle in enumerate(row.get("bundles", []))},
        "bundles_to_node_id": dict(enumerate(nodes)),
        "strategy": row.get("strategy", "PACK"),
        "state": row.get("state", ""),
        "stats": dict(row.get("stats") or {}),
    }


def check_placement_group_index(placement_group: PlacementGroup, bundle_index: int) -> None:
    """A ValueError when the group has no bundle of that index; -1 stands for any."""
    if placement_group.is_empty:
        if bundle_index != -1:
            raise ValueError(f"If placement group is not set, the value of bundle index must be -1, not {bundle_index}")
        return
    if bundle_index >= placement_group.bundle_count or bundle_index < -1:
        raise ValueError(f"placement group bundle index {bundle_index} is invalid: the group has {placement_group.bundle_count} bundles, "
                         "0 to that less one, or -1 for any")
