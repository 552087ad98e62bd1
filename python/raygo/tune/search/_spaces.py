"""What the searchers make of a search space."""
from __future__ import annotations

from typing import Any

from raygo.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Normal, Quantized
from raygo.tune.search.variant_generator import assign_value, has_unresolved, without_grids

__all__ = ["Parameter", "nested", "parameters", "flat_point"]


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


def flat_point(point: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A point of `points_to_evaluate` by names."""
    flat: dict[str, Any] = {}
    for key, value in point.items():
        if isinstance(value, dict):
            flat.update(flat_point(value, f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
