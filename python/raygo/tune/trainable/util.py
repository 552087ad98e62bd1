"""What is given to trainables besides their config."""
from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["as_placement_group_factory", "with_parameters", "with_resources"]


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """A trainable that is also given these values, which are stored once, however many trials there are.

    Parameters
    ----------
    trainable : callable or class
        A function gets them as keywords, a class in ``setup(config, **kwargs)``.
    **kwargs
        The values.

    Examples
    --------
    >>> def train(config, data):
    ...     raygo.tune.report({"rows": len(data)})
    >>> tuner = Tuner(with_parameters(train, data=large))   # doctest: +SKIP
    """
    import raygo
    from raygo.tune.trainable.trainable import Trainable

    if not callable(trainable) or (isinstance(trainable, type) and not issubclass(trainable, Trainable)):
        raise ValueError(f"with_parameters() takes a function or a Trainable class, not {_said(trainable)}")
    _check_keywords(trainable, kwargs)
    refs = {name: raygo.put(value) for name, value in kwargs.items()}

    def values() -> dict[str, Any]:
        return dict(zip(refs, raygo.get(list(refs.values())), strict=True))

    if isinstance(trainable, type) and issubclass(trainable, Trainable):

        def setup(self: Any, config: dict[str, Any]) -> None:
            trainable.setup(self, config, **values())

        return type(trainable.__name__, (trainable,), {"setup": setup, "__module__": trainable.__module__, "__doc__": trainable.__doc__})

    def with_values(config: dict[str, Any]) -> Any:
        return trainable(config, **values())

    return _named_like(with_values, trainable)


def with_resources(trainable: Any, resources: Any) -> Any:
    """A trainable whose trials reserve these resources.

    Parameters
    ----------
    trainable : callable, class or trainer
        What is tried.
    resources : dict, PlacementGroupFactory, ScalingConfig or callable
        ``{"cpu": 2, "gpu": 1}``; or what such a thing is made of for a config.

    Examples
    --------
    >>> tuner = Tuner(with_resources(train, {"cpu": 2}))    # doctest: +SKIP
    """
    from raygo.tune.trainable.trainable import Trainable

    if callable(resources) and not hasattr(resources, "bundles"):
        def wanted(config: dict[str, Any]) -> Any:
            return as_placement_group_factory(resources(config))
    else:
        fixed = as_placement_group_factory(resources)

        def wanted(config: dict[str, Any]) -> Any:
            return fixed

    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        return type(trainable.__name__, (trainable,), {"default_resource_request": classmethod(lambda cls, config: wanted(config)),
                                                       "__module__": trainable.__module__, "__doc__": trainable.__doc__})
    if not callable(trainable) or isinstance(trainable, type):
        if isinstance(trainable, type) or not hasattr(trainable, "fit"):
            raise ValueError(f"with_resources() takes a function, a Trainable class or a trainer, not {_said(trainable)}")
        import copy

        trainable = copy.copy(trainable)
        trainable._tune_resources = wanted
        return trainable

    def same(config: dict[str, Any], **kwargs: Any) -> Any:
        return trainable(config, **kwargs)

    _named_like(same, trainable)
    same.__wrapped__ = trainable  # type: ignore[attr-defined]
    same._resources = wanted  # type: ignore[attr-defined]
    return same


def as_placement_group_factory(resources: Any) -> Any:
    """Resources in any of their forms as bundles."""
    from raygo.train._settings import PlacementGroupFactory, ScalingConfig

    if resources is None or isinstance(resources, PlacementGroupFactory):
        return resources
    if isinstance(resources, Mapping) and not resources:
        return PlacementGroupFactory([{"CPU": 1}])
    if isinstance(resources, ScalingConfig):
        return resources.as_placement_group_factory()
    if not isinstance(resources, Mapping):
        raise ValueError(f"resources are a {type(resources).__name__}: give a dict such as {{'cpu': 2}}, a PlacementGroupFactory or a ScalingConfig")
    bundle: dict[str, float] = {}
    for name, amount in resources.items():
        if name == "custom_resources":
            bundle.update(amount)
            continue
        if not isinstance(amount, (int, float)) or amount < 0:
            raise ValueError(f"resources[{name!r}] is {amount!r}: give a number that is not negative")
        bundle[{"cpu": "CPU", "gpu": "GPU"}.get(str(name), str(name))] = amount
    if not any(bundle.values()):
        raise ValueError(f"resources are {resources!r}: a trial has to reserve something, such as {{'cpu': 0.1}}, or all would run at once")
    return PlacementGroupFactory([bundle])


def _said(thing: Any) -> str:
    return f"the class {thing.__name__}, which is no Trainable" if isinstance(thing, type) else f"a {type(thing).__name__}: {thing!r}"


def _check_keywords(trainable: Any, given: dict[str, Any]) -> None:
    import inspect

    target: Any = getattr(trainable, "setup", trainable) if isinstance(trainable, type) else trainable
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    unknown = [name for name in given if name not in parameters]
    if unknown:
        raise ValueError(f"{getattr(trainable, '__name__', trainable)} has no parameter {', '.join(unknown)}; it has {', '.join(parameters)}")


def _named_like(function: Callable[..., Any], like: Any) -> Callable[..., Any]:
    function.__name__ = name_of(like)
    function.__doc__ = getattr(like, "__doc__", None)
    if hasattr(like, "_resources"):
        function._resources = like._resources  # type: ignore[attr-defined]
    return function


def name_of(trainable: Any) -> str:
    """What trials of it are called."""
    if isinstance(trainable, str):
        return trainable
    if isinstance(trainable, functools.partial):
        return name_of(trainable.func)
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    if isinstance(trainable, types.FunctionType) and name == "<lambda>":
        return "lambda"
    return str(name)
