"""The options of tasks, actors and methods: which there are, what they accept, and what they become in a template.

Messages and defaults are Ray's, since users search for them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# The placement group that captures what is submitted here: a worker sets it while a task or actor runs whose strategy says so.
CAPTURED: dict[str, int | None] = {"group": None}
UNITS = 10_000  # resources are counted in these fractions
_TOO_MUCH = 1 << 49  # times UNITS still fits the engine's integers
_NONE = type(None)
_LIFETIMES = "actor `lifetime` argument must be one of 'detached', 'non_detached' and 'None'."
_NUM_RETURNS = (
    "Default None. When None is passed, The default value is 1 for a task and actor task, and 'streaming' for generator tasks and generator "
    "actor tasks. The keyword 'num_returns' only accepts None, a non-negative integer, 'streaming' (for generators), or 'dynamic'."
)
_NO_BACKPRESSURE_0 = (
    "_generator_backpressure_num_objects=0 is not allowed. Use a value > 0. With 1 the task makes an item whenever one is taken, as a plain generator does. "
    "Use -1 for no limit."
)


class Option(NamedTuple):
    """One keyword: the types it takes, what its value must fulfil (None, or the text of the error), and its default."""

    types: Any = None  # a tuple of types, or a function without arguments that gives one (for types of modules not loaded yet)
    check: Callable[[Any], str | None] | None = None
    default: Any = None

    def validate(self, keyword: str, value: Any) -> None:
        """Raise TypeError or ValueError when `value` will not do."""
        types = self.types() if callable(self.types) and not isinstance(self.types, type) else self.types
        if types is not None and not isinstance(value, types):
            raise TypeError(f"The type of keyword '{keyword}' must be {types}, but received type {type(value)}")
        if self.check is not None:
            text = self.check(value)
            if text:
                raise ValueError(text)


def _count(name: str, infinite: bool = True, default: Any = None) -> Option:
    lowest = -1 if infinite else 0
    accepted = "None, 0, -1 or a positive integer, where -1 represents infinity." if infinite else "None, 0 or a positive integer."

    def check(value: Any) -> str | None:
        return None if value is None or value >= lowest else f"The keyword '{name}' only accepts {accepted}"

    return Option((int, _NONE), check, default)


def _quantity(name: str, value: Any) -> str | None:
    if value < 0:
        return f"The quantity of resource {name} cannot be negative"
    if value >= _TOO_MUCH:
        return f"The quantity of resource {name} is {value}: raygo counts to {_TOO_MUCH}"
    if isinstance(value, float) and value != 0.0 and int(value * UNITS) == 0:
        return f"The precision of the fractional quantity of resource {name} cannot go beyond 0.0001"
    if name in ("num_gpus", "GPU") and value > 1 and float(value) != int(value):
        return f"{name} is {value}: above 1 it must be a whole number, since a GPU is shared by at most one fraction of it"
    return None


def _resource(name: str, default: Any = None) -> Option:
    return Option((float, int, _NONE), lambda value: None if value is None else _quantity(name, value), default)


def _resources(value: Any) -> str | None:
    if value is None:
        return None
    if "CPU" in value or "GPU" in value:
        return "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword"
    for name, quantity in value.items():
        if not isinstance(name, str):
            return f"The name of a resource must be a str, but 'resources' has {name!r}"
        if not isinstance(quantity, (int, float)):
            return f"The quantity of resource {name} must be a number, not {quantity!r}"
        text = _quantity(name, quantity)
        if text:
            return text
    return None


def labels(value: Any, what: str) -> str | None:
    """What is wrong with labels, or with what selects by them."""
    for key, wanted in (value or {}).items():
        if not isinstance(key, str) or not isinstance(wanted, str):
            return f"{what} maps str to str, but has {key!r}: {wanted!r}"
        if not key:
            return f"{what} has an empty label name"
    return None


def _label_selector(value: Any) -> str | None:
    return labels(value, "label_selector")


def _fallback(value: Any) -> str | None:
    for entry in value or []:
        if not isinstance(entry, dict) or set(entry) - {"label_selector"}:
            return f"fallback_strategy is a list of {{'label_selector': …}}, but has {entry!r}"
        text = _label_selector(entry.get("label_selector"))
        if text:
            return text
    return None


def _num_returns(value: Any) -> str | None:
    if value is None or value in ("dynamic", "streaming") or (isinstance(value, int) and value >= 0):
        return None
    return _NUM_RETURNS


def _retry_exceptions(value: Any) -> str | None:
    if isinstance(value, bool) or all(isinstance(kind, type) and issubclass(kind, Exception) for kind in value):
        return None
    return "retry_exceptions must be either a boolean or a list of exceptions"


def _strategy_types() -> tuple[type, ...]:
    from raygo.util import scheduling_strategies as s

    return (_NONE, str, s.PlacementGroupSchedulingStrategy, s.NodeAffinitySchedulingStrategy, s.NodeLabelSchedulingStrategy)


def _group_types() -> tuple[type, ...]:
    from raygo.util.placement_group import PlacementGroup

    return (_NONE, str, PlacementGroup)


def _strategy(value: Any) -> str | None:
    if isinstance(value, str) and value not in ("DEFAULT", "SPREAD"):
        return f"Invalid scheduling_strategy value {value!r}. Valid values are [`DEFAULT` | `SPREAD` | one of raygo.util.scheduling_strategies]"
    return None


_BACKPRESSURE = Option((int, _NONE), lambda value: _NO_BACKPRESSURE_0 if value == 0 else None)

COMMON: dict[str, Option] = {
    "label_selector": Option((dict, _NONE), _label_selector),
    "fallback_strategy": Option((list, _NONE), _fallback),
    "accelerator_type": Option((str, _NONE)),
    "memory": _resource("memory"),
    "name": Option((str, _NONE)),
    "num_cpus": _resource("num_cpus"),
    "num_gpus": _resource("num_gpus"),
    "object_store_memory": _count("object_store_memory", False),
    "placement_group": Option(_group_types, None, "default"),
    "placement_group_bundle_index": Option(int, None, -1),
    "placement_group_capture_child_tasks": Option((bool, _NONE)),
    "resources": Option((dict, _NONE), _resources),
    "runtime_env": Option((dict, _NONE)),
    "scheduling_strategy": Option(_strategy_types, _strategy),
    "enable_task_events": Option(bool, None, True),
    "_labels": Option((dict, _NONE)),
    "_metadata": Option((dict, _NONE)),
}
TASK: dict[str, Option] = {
    **COMMON,
    "max_calls": _count("max_calls", False, 0),
    "max_retries": _count("max_retries", default=3),
    "num_cpus": _resource("num_cpus", 1),
    "num_returns": Option((int, str, _NONE), _num_returns),
    "object_store_memory": Option((int, _NONE), lambda value: None if value is None else "Setting 'object_store_memory' is not implemented for tasks"),
    "retry_exceptions": Option((bool, list, tuple), _retry_exceptions, False),
    "_generator_backpressure_num_objects": _BACKPRESSURE,
    "_num_objects_per_yield": _count("_num_objects_per_yield", False, 1),
}
ACTOR: dict[str, Option] = {
    **COMMON,
    "concurrency_groups": Option((list, dict, _NONE)),
    "enable_tensor_transport": Option((bool, _NONE)),
    "lifetime": Option(
        (str, _NONE),
        lambda value: None if value in (None, "detached", "non_detached") else _LIFETIMES,
    ),
    "max_concurrency": _count("max_concurrency", False),
    "max_restarts": _count("max_restarts", default=0),
    "max_task_retries": _count("max_task_retries", default=0),
    "max_pending_calls": _count("max_pending_calls", default=-1),
    "namespace": Option((str, _NONE)),
    "get_if_exists": Option(bool, None, False),
    "allow_out_of_order_execution": Option((bool, _NONE)),
    "_actor_generator_backpressure_num_objects": _BACKPRESSURE,
}
METHOD: dict[str, Option] = {
    "num_returns": Option((int, str, _NONE), _num_returns),
    "concurrency_group": Option((str, _NONE)),
    "max_task_retries": _count("max_task_retries"),
    "retry_exceptions": Option((bool, list, tuple, _NONE), lambda value: None if value is None else _retry_exceptions(value)),
    "name": Option((str, _NONE)),
    "enable_task_events": Option((bool, _NONE)),
    "tensor_transport": Option((str, _NONE)),
    "runtime_env": Option((dict, _NONE)),
    "_generator_backpressure_num_objects": _BACKPRESSURE,
    "_num_objects_per_yield": _count("_num_objects_per_yield", False, 1),
}
DECORATOR_ERROR = (
    "The @ray.remote decorator must be applied either with no arguments and no parentheses, for example '@ray.remote', or it must be applied "
    f"using some of the arguments in the list {list({**TASK, **ACTOR})}, for example '@ray.remote(num_returns=2, resources={{\"CustomResource\": 1}})'."
)


def validate_task(options: dict[str, Any], in_options: bool) -> None:
    """Check the options of a remote function; `in_options`: they were given to ``.options()``."""
    for key, value in options.items():
        if key not in TASK:
            raise ValueError(f"Invalid option keyword {key} for remote functions. Valid ones are {list(TASK)}.")
        TASK[key].validate(key, value)
    if in_options and "max_calls" in options:
        raise ValueError("Setting 'max_calls' is not supported in '.options()'.")
    _one_placement(options)


def validate_actor(options: dict[str, Any], in_options: bool) -> None:
    """Check the options of an actor class; `in_options`: they were given to ``.options()``."""
    for key, value in options.items():
        if key not in ACTOR:
            raise ValueError(f"Invalid option keyword {key} for actors. Valid ones are {list(ACTOR)}.")
        ACTOR[key].validate(key, value)
    if in_options and "concurrency_groups" in options:
        raise ValueError("Setting 'concurrency_groups' is not supported in '.options()'.")
    if options.get("get_if_exists") and not options.get("name"):
        raise ValueError("The actor name must be specified to use `get_if_exists`.")
    if options.get("name") == "":
        raise ValueError("Actor name cannot be an empty string.")
    if options.get("namespace") == "":
        raise ValueError('"" is not a valid namespace. Pass None to not specify a namespace.')
    if options.get("max_concurrency") == 0:
        raise ValueError("max_concurrency must be at least 1: an actor that runs no call at a time never answers")
    if "object_store_memory" in options:
        text = "Setting 'object_store_memory' for actors is deprecated since it doesn't actually reserve the required object store memory."
        warnings.warn(text, DeprecationWarning, stacklevel=3)
    _one_placement(options)


def validate_method(options: dict[str, Any]) -> None:
    """Check the options of an actor's method."""
    for key, value in options.items():
        if key not in METHOD:
            raise ValueError(f"Invalid option keyword {key} for actor methods. Valid ones are {list(METHOD)}.")
        METHOD[key].validate(key, value)


def _one_placement(options: dict[str, Any]) -> None:
    group = options.get("placement_group", "default")
    if group not in ("default", None) and options.get("scheduling_strategy") is not None:
        raise ValueError("Placement groups should be specified via the scheduling_strategy option. The placement_group option is deprecated.")
    if isinstance(group, str) and group != "default":
        raise ValueError(f"placement_group is {group!r}: give a PlacementGroup, None, or 'default'")


def check_environment(options: dict[str, Any]) -> None:
    """Refuse a runtime_env that cannot be built, where it is written.

    A decorator does not ask: its module may be imported where the paths it names are not.
    """
    if options.get("runtime_env"):
        from raygo.runtime_env import canonical_json

        canonical_json(options["runtime_env"], parent="")


def check_generator(is_generator: bool, num_returns: Any) -> None:
    """Refuse "streaming" and "dynamic" for a function that yields nothing."""
    if isinstance(num_returns, int) and num_returns < 0:
        raise ValueError(f"num_returns must be >= 0, but got {num_returns}.")
    if num_returns in ("streaming", "dynamic") and not is_generator:
        raise ValueError(f"num_returns='{num_returns}' can only be used with generator functions (functions that use yield).")


# ---- what options become


def resources_of(options: dict[str, Any], cpus: Any) -> dict[str, int]:
    """The demand, in units; `cpus` where num_cpus is not given."""
    out: dict[str, float] = dict(options.get("resources") or {})
    given = options.get("num_cpus")
    out["CPU"] = cpus if given is None else given
    if options.get("num_gpus"):
        out["GPU"] = options["num_gpus"]
    if options.get("memory"):
        out["memory"] = int(options["memory"])
    if options.get("accelerator_type"):
        out[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    return {name: round(quantity * UNITS) for name, quantity in out.items() if quantity}


def strategy_of(options: dict[str, Any], demand: dict[str, int], what: str) -> dict[str, Any]:
    """The template's ``strategy`` map; empty for the default one. `what` names the task or actor in errors."""
    strategy = options.get("scheduling_strategy")
    group = options.get("placement_group", "default")
    if strategy is None and group == "default":
        captor = CAPTURED["group"]
        return {"type": "pg", "pg": captor, "bundle": -1, "capture": True} if captor else {}
    if strategy is None:
        if group is None:
            return {"type": "default", "pg": 0, "capture": False}
        return _group(group, options.get("placement_group_bundle_index", -1), options.get("placement_group_capture_child_tasks"), demand, what)
    if isinstance(strategy, str):
        return {"type": strategy.lower()}
    if hasattr(strategy, "placement_group"):
        group = strategy.placement_group
        if group is None:
            return {"type": "default", "pg": 0, "capture": False}
        return _group(group, strategy.placement_group_bundle_index, strategy.placement_group_capture_child_tasks, demand, what)
    if hasattr(strategy, "node_id"):
        return {"type": "node", "node": strategy.node_id, "soft": bool(strategy.soft)}
    hard, soft = (_labels(getattr(strategy, side, None)) for side in ("hard", "soft"))
    return {"type": "labels", "hard": hard, "soft_labels": soft}


def _group(group: Any, bundle: int | None, capture: bool | None, demand: dict[str, int], what: str) -> dict[str, Any]:
    index = -1 if bundle is None else bundle
    specs = group.bundle_specs
    if not -1 <= index < len(specs):
        raise ValueError(f"placement group bundle index {index} is invalid. Valid placement group indexes: 0-{len(specs) - 1}")
    candidates = specs if index < 0 else [specs[index]]
    if not any(all(round(spec.get(name, 0) * UNITS) >= units for name, units in demand.items()) for spec in candidates):
        wanted = {name: units / UNITS for name, units in demand.items()}
        raise ValueError(
            f"Cannot schedule {what} with the placement group because the resource request {wanted} cannot fit into any bundles for the "
            f"placement group, {candidates}."
        )
    return {"type": "pg", "pg": group.id._number, "bundle": index, "capture": bool(capture)}


def _labels(expressions: dict[str, Any] | None) -> dict[str, Any]:
    ops = {"In": "in", "NotIn": "not_in", "Exists": "exists", "DoesNotExist": "absent"}
    return {key: {"op": ops[type(value).__name__], "values": list(getattr(value, "values", ()))} for key, value in (expressions or {}).items()}


def retry_of(value: Any) -> tuple[int, tuple[type, ...]]:
    """The template's ``retry_exceptions`` and the types it lists."""
    if isinstance(value, bool) or value is None:
        return int(bool(value)), ()
    return (2, tuple(value)) if value else (0, ())


def common_map(options: dict[str, Any], demand: dict[str, int], what: str) -> dict[str, Any]:
    """What tasks and actors have in common in their template."""
    from raygo.runtime_env import canonical_json

    out: dict[str, Any] = {}
    strategy = strategy_of(options, demand, what)
    if strategy:
        out["strategy"] = strategy
    if options.get("label_selector"):
        out["label_selector"] = dict(options["label_selector"])
    environment = canonical_json(options.get("runtime_env"))
    if environment:
        out["runtime_env"] = environment
    if options.get("enable_task_events") is False:
        out["enable_task_events"] = False
    return out
