"""Where a task or actor is to run: the values of the option ``scheduling_strategy``."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from raygo.util.placement_group import PlacementGroup

__all__ = ["DoesNotExist", "Exists", "In", "NodeAffinitySchedulingStrategy", "NodeLabelSchedulingStrategy", "NotIn",
           "PlacementGroupSchedulingStrategy"]

# What the engine knows by a word: "DEFAULT" packs, "SPREAD" goes round the nodes.
SchedulingStrategyT = Union[None, str, "PlacementGroupSchedulingStrategy", "NodeAffinitySchedulingStrategy",
                            "NodeLabelSchedulingStrategy"]


class PlacementGroupSchedulingStrategy:
    """Run inside a placement group.

    Parameters
    ----------
    placement_group : PlacementGroup
        The group whose reserved resources are used.
    placement_group_bundle_index : int
        The bundle to use; -1 takes any bundle with room.
    placement_group_capture_child_tasks : bool, optional
        Whether tasks started from within run in the group too.
    """

    def __init__(self, placement_group: PlacementGroup, placement_group_bundle_index: int = -1,
                 placement_group_capture_child_tasks: bool | None = None) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks

    def __repr__(self) -> str:
        return (f"PlacementGroupSchedulingStrategy({self.placement_group!r}, "
                f"placement_group_bundle_index={self.placement_group_bundle_index})")


class NodeAffinitySchedulingStrategy:
    """Run on a given node.

    Parameters
    ----------
    node_id : str
        The node, in hex, as in ``raygo.nodes()[i]["NodeID"]``.
    soft : bool
        Run elsewhere when that node is not there; otherwise the task fails.
    """

    def __init__(self, node_id: str, soft: bool, _spill_on_unavailable: bool = False,
                 _fail_on_unavailable: bool = False) -> None:
        if not isinstance(node_id, str):
            node_id = node_id.hex()
        if _spill_on_unavailable and not soft:
            raise ValueError("_spill_on_unavailable needs soft=True: a hard affinity never runs elsewhere")
        if _fail_on_unavailable and soft:
            raise ValueError("_fail_on_unavailable needs soft=False: a soft affinity runs elsewhere instead of failing")
        self.node_id = node_id
        self.soft = soft
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable

    def __repr__(self) -> str:
        return f"NodeAffinitySchedulingStrategy({self.node_id!r}, soft={self.soft})"


class _LabelOperator:
    """One condition on a node's label; `op` and `values` are what the engine is told."""

    op = ""
    values: list[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.values))})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.values == getattr(other, "values", None)

    def __hash__(self) -> int:
        return hash((self.op, tuple(self.values)))


def _strings(values: tuple[Any, ...], what: str) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{what} takes label values that are strings, not {type(value).__name__}: {value!r}")
    return list(values)


class In(_LabelOperator):
    """The label has one of these values."""

    op = "in"

    def __init__(self, *values: str) -> None:
        self.values = _strings(values, "In")


class NotIn(_LabelOperator):
    """The label is absent or has none of these values."""

    op = "not_in"

    def __init__(self, *values: str) -> None:
        self.values = _strings(values, "NotIn")


class Exists(_LabelOperator):
    """The node has the label, whatever its value."""

    op = "exists"

    def __init__(self) -> None:
        self.values = []


class DoesNotExist(_LabelOperator):
    """The node does not have the label."""

    op = "absent"

    def __init__(self) -> None:
        self.values = []


def _conditions(given: Mapping[str, _LabelOperator] | None, which: str) -> dict[str, _LabelOperator]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"{which} is a dict of label name to In, NotIn, Exists or DoesNotExist, not {type(given).__name__}")
    for key, condition in given.items():
        if not isinstance(key, str):
            raise ValueError(f"{which}: label names are strings, not {type(key).__name__}: {key!r}")
        if not isinstance(condition, _LabelOperator):
            raise ValueError(f"{which}[{key!r}] is {condition!r}: give In(...), NotIn(...), Exists() or DoesNotExist()")
    return dict(given)


class NodeLabelSchedulingStrategy:
    """Run on a node whose labels meet conditions.

    Parameters
    ----------
    hard : dict
        Label name to In, NotIn, Exists or DoesNotExist; all must hold.
    soft : dict, optional
        The same, preferred but not required.

    Examples
    --------
    >>> NodeLabelSchedulingStrategy({"zone": In("a", "b")}, soft={"disk": Exists()})
    NodeLabelSchedulingStrategy({'zone': In('a', 'b')}, soft={'disk': Exists()})
    """

    def __init__(self, hard: Mapping[str, _LabelOperator] | None, *, soft: Mapping[str, _LabelOperator] | None = None) -> None:
        self.hard = _conditions(hard, "hard")
        self.soft = _conditions(soft, "soft")
        if not self.hard and not self.soft:
            raise ValueError("NodeLabelSchedulingStrategy needs at least one condition in hard or soft")

    def __repr__(self) -> str:
        return f"NodeLabelSchedulingStrategy({self.hard!r}, soft={self.soft!r})"
