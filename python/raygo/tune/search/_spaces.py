"""What the searchers make of a search space."""
from __future__ import annotations

from collections.abc import Collection
from typing import Any

from raygo.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Normal, Quantized
from raygo.tune.search.variant_generator import assign_value, has_unresolved, without_grids

__all__ = ["Parameter", "nested", "parameters", "flat_point", "unflat"]


class Parameter:
    """A domain under a name, taken apart.

    Attributes
    ----------
    name : str
        The path, joined by ``/``.
    kind : {"float", "int", "choice", "normal"}
        What values are.
    lower, upper : float
        The bounds; of an int both are values.
    log : bool
        Whether orders of magnitude count alike.
    step : float or None
        Values are multiples of it.
    """

    def __init__(self, path: tuple[Any, ...], domain: Domain, who: str) -> None:
        self.path, self.domain = path, domain
        self.name = "/".join(map(str, path))
        sampler = domain.get_sampler()
        self.step: float | None = None
        if isinstance(sampler, Quantized):
            self.step, sampler = sampler.q, sampler.sampler
        self.log = isinstance(sampler, LogUniform)
        self.mean, self.sd = (sampler.mean, sampler.sd) if isinstance(sampler, Normal) else (0.0, 1.0)
        self.categories: list[Any] = []
        self.lower: Any = getattr(domain, "lower", None)
        self.upper: Any = getattr(domain, "upper", None)
        if isinstance(domain, Categorical):
            self.kind, self.categories = "choice", domain.categories
        elif isinstance(sampler, Normal):
            self.kind = "normal"
        elif isinstance(domain, Float):
            self.kind = "float"
        elif isinstance(domain, Integer):
            self.kind = "int"
            if self.step is None or self.step == 1:       # with a step both bounds are values
                self.upper = domain.upper - 1
            else:
                self.lower, self.upper = domain._multiples(self.step)
        else:
            raise ValueError(f"{who} does not know what to do with {self.name}: {domain!r}")

    @property
    def conditional(self) -> bool:
        """Whether a value that may be chosen has domains of its own."""
        return any(has_unresolved(value) for value in self.categories)

    def quantized(self, value: float) -> Any:
        """A value of an optimiser as the domain has it."""
        if self.step is not None:
            value = round(value / self.step) * self.step
        return self.domain.cast(round(value) if self.kind == "int" else value)


def parameters(space: dict[str, Any], who: str) -> list[Parameter]:
    """The domains of a space."""
    return [Parameter(path, domain, who) for path, domain in without_grids(space, who)]


def nested(flat: dict[str, Any], params: list[Parameter]) -> dict[str, Any]:
    """Values by name as a config."""
    config: dict[str, Any] = {}
    for param in params:
        place = config
        for key in param.path[:-1]:
            place = place.setdefault(key, {})
        assign_value(place, param.path[-1:], flat[param.name])
    return config


def flat_point(point: Any, known: Collection[str] = (), prefix: str = "") -> dict[str, Any]:
    """A point of `points_to_evaluate` by names.

    Parameters
    ----------
    point : dict
        The point, nested like the space.
    known : collection of str, optional
        The names that there are: lists are taken apart for them, and what has one of them stays whole.
    """
    flat: dict[str, Any] = {}
    for key, value in point.items() if isinstance(point, dict) else enumerate(point):
        name = f"{prefix}{key}"
        if name not in known and (isinstance(value, dict) or (known and isinstance(value, (list, tuple)))):
            flat.update(flat_point(value, known, f"{name}/"))
        else:
            flat[name] = value
    return flat


def unflat(flat: dict[str, Any]) -> dict[str, Any]:
    """Values by names as a config: ``a/b`` is b within a."""
    config: dict[str, Any] = {}
    for name, value in flat.items():
        place = config
        *parents, last = name.split("/")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise TypeError(f"there is no place for {name!r}, as {parent!r} is {place!r}: name one of them otherwise")
        place[last] = value
    return config
