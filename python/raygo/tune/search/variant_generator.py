"""Configurations from a search space: grids are crossed, domains drawn from, functions called last."""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from raygo.tune.search.sample import Categorical, Domain, Function

__all__ = ["RecursiveDependencyError", "assign_value", "count_variants", "format_vars", "generate_variants", "grid_search", "has_unresolved",
           "parse_spec_vars", "without_grids"]

Path = tuple[Any, ...]


class RecursiveDependencyError(Exception):
    """Functions of a search space wait for each other."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)


def grid_search(values: Any) -> dict[str, Any]:
    """Every value in turn; several grids are crossed.

    Examples
    --------
    >>> grid_search([1, 2])
    {'grid_search': [1, 2]}
    """
    if not isinstance(values, Iterable):
        raise ValueError(f"grid_search expects a list of values, not {values!r}")
    values = list(values)
    if not values:
        raise ValueError("grid_search([]): give at least one value")
    return {"grid_search": values}


def generate_variants(unresolved_spec: dict[str, Any], constant_grid_search: bool = False,
                      random_state: Any = None) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """Every configuration of one pass over the space.

    Parameters
    ----------
    unresolved_spec : dict
        The space: nested dicts and lists with domains and grids in them.
    constant_grid_search : bool
        Draw once, and cross that with the grids, instead of drawing for each point of the grids.
    random_state : optional
        See `Domain.sample`.

    Yields
    ------
    tuple
        What was searched, by path, and the configuration.
    """
    if isinstance(random_state, int):
        from raygo.tune.search.sample import generator

        random_state = generator(random_state)
    grids, domains = parse_spec_vars(unresolved_spec)
    if not grids and not domains:
        yield {}, _copy(unresolved_spec)
        return
    drawn_once = {path: d.sample(random_state=random_state) for path, d in domains if not d.is_function()} if constant_grid_search else None
    # The first grid turns fastest.
    for point in itertools.product(*(values for _, values in reversed(grids))):
        spec = _copy(unresolved_spec)
        known: dict[Path, Any] = {path: value for (path, _), value in zip(reversed(grids), point, strict=True)}
        for path, domain in domains:
            if not domain.is_function():
                known[path] = drawn_once[path] if drawn_once is not None else domain.sample(random_state=random_state)
        for path, value in known.items():
            assign_value(spec, path, _copy(value))
        # A value may be a space itself.
        for inner, resolved in _inner_variants(spec, known, constant_grid_search, random_state):
            functions = [(path, d) for path, d in parse_spec_vars(resolved)[1] if d.is_function()]
            plain = {path: value for path, value in known.items() if not has_unresolved(value)}
            yield {**plain, **inner, **_call_functions(resolved, functions)}, resolved


def _inner_variants(spec: dict[str, Any], known: dict[Path, Any], constant: bool, random_state: Any) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    grids, domains = parse_spec_vars(spec)
    if not grids and all(d.is_function() for _, d in domains):
        yield {}, spec
        return
    outer = [(path, d) for path, d in domains if d.is_function()]
    for path, _ in outer:
        assign_value(spec, path, None)
    for found, resolved in generate_variants(spec, constant, random_state):
        for path, domain in outer:
            assign_value(resolved, path, domain)
        yield found, resolved


def _call_functions(spec: dict[str, Any], functions: list[tuple[Path, Domain]]) -> dict[Path, Any]:
    values: dict[Path, Any] = {}
    waiting = functions
    while waiting:
        left: list[tuple[Path, Domain]] = []
        reason: Exception | None = None
        for path, domain in waiting:
            try:
                value = domain.sample(config=_Spec(spec))
            except RecursiveDependencyError as error:
                left.append((path, domain))
                reason = error
                continue
            except Exception as error:
                raise ValueError(f"the function of sample_from at {'/'.join(map(str, path))} failed: {type(error).__name__}: {error}") from error
            while isinstance(value, Domain) and not value.is_function():
                value = value.sample()
            values[path] = value
            assign_value(spec, path, value)
        if len(left) == len(waiting):
            names = ", ".join("/".join(map(str, path)) for path, _ in left)
            raise RecursiveDependencyError(f"the functions of {names} wait for each other: {reason}")
        waiting = left
    return values


class _Spec(dict[str, Any]):
    """What `sample_from` functions see: a dict whose keys are attributes too, and which refuses values that are not known yet."""

    def __getattr__(self, name: str) -> Any:
        if name == "config" and "config" not in self:
            return self
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the search space has no parameter {name!r}; it has {sorted(map(str, self))}") from None

    def __getitem__(self, key: str) -> Any:
        value = self if key == "config" and "config" not in self else dict.__getitem__(self, key)
        if isinstance(value, Domain):
            raise RecursiveDependencyError(f"`{key}` recursively depends on {value!r}")
        return _Spec(value) if isinstance(value, dict) and not isinstance(value, _Spec) else value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default


def parse_spec_vars(spec: Any) -> tuple[list[tuple[Path, list[Any]]], list[tuple[Path, Domain]]]:
    """The grids and the domains of a space, by path."""
    grids: list[tuple[Path, list[Any]]] = []
    domains: list[tuple[Path, Domain]] = []
    _parse(spec, (), grids, domains)
    return grids, domains


def _parse(value: Any, path: Path, grids: list[tuple[Path, list[Any]]], domains: list[tuple[Path, Domain]]) -> None:
    if isinstance(value, Domain):
        if isinstance(value, Categorical) and value.is_grid():
            grids.append((path, value.categories))
        else:
            domains.append((path, value))
    elif isinstance(value, dict):
        if len(value) == 1 and "grid_search" in value:
            values = value["grid_search"]
            if not isinstance(values, (list, tuple)) and not hasattr(values, "tolist"):
                raise ValueError(f"grid_search at {'/'.join(map(str, path))} expects a list of values, not {values!r}")
            grids.append((path, list(values)))
            return
        for key, inner in value.items():
            _parse(inner, (*path, key), grids, domains)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            _parse(inner, (*path, i), grids, domains)


def has_unresolved(spec: Any) -> bool:
    """Whether there are grids or domains in it."""
    grids, domains = parse_spec_vars(spec)
    return bool(grids or domains)


def without_grids(spec: Any, who: str) -> list[tuple[Path, Domain]]:
    """The domains of a space that may have no grids."""
    grids, domains = parse_spec_vars(spec)
    if grids:
        names = ", ".join("/".join(map(str, path)) for path, _ in grids)
        raise ValueError(f"Grid search parameters cannot be automatically converted to a search space of {who}: {names}. Use tune.choice there, "
                         "or leave the search algorithm out.")
    functions = [path for path, domain in domains if isinstance(domain, Function)]
    if functions:
        names = ", ".join("/".join(map(str, path)) for path in functions)
        raise ValueError(f"sample_from cannot be converted to a search space of {who}: {names}. Use a domain such as tune.uniform there.")
    return domains


def count_variants(spec: dict[str, Any]) -> int:
    """How many configurations one pass over the space has."""
    count = 1
    for _, values in parse_spec_vars(spec)[0]:
        count *= len(values)
    return count


def assign_value(spec: Any, path: Path, value: Any) -> None:
    """Put a value at a path."""
    for key in path[:-1]:
        spec = spec[key]
    spec[path[-1]] = value


def get_value(spec: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        spec = spec[key]
    return spec


def _copy(value: Any) -> Any:
    """A copy of the containers; what they hold is shared, however large it is."""
    if type(value) is dict:
        return {key: _copy(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return [_copy(inner) for inner in value] if type(value) is list or has_unresolved(value) else value
    return value


def format_vars(resolved_vars: dict[Path, Any]) -> str:
    """What was searched, short enough for a folder's name."""
    parts = []
    for path, value in sorted(resolved_vars.items(), key=lambda item: tuple(map(str, item[0]))):
        if path and path[0] in ("run", "env", "resources_per_trial"):
            continue
        names = [str(part) for part in path if not isinstance(part, int)] or [str(path[-1])]
        parts.append(f"{_clean(names[-1])}={_clean(value)}")
    return ",".join(parts)


def _clean(value: Any) -> str:
    if isinstance(value, float):
        text = f"{value:.4f}"
        return text if float(text) or not value else f"{value:.4g}"
    return re.sub(r"[^\w.\-]+", "_", str(value))[:40].strip("_")
