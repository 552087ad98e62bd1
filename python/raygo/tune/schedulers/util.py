"""Checks that several schedulers make."""
from __future__ import annotations

from typing import Any

from raygo.tune.search.sample import Domain


def check_mutations(mutations: dict[str, Any], name: str = "hyperparam_mutations") -> None:
    """Refuse what values cannot be mutated by."""
    for key, value in mutations.items():
        if isinstance(value, dict):
            check_mutations(value, f"{name}[{key!r}]")
        elif not (isinstance(value, (list, tuple, Domain)) or callable(value)):
            raise TypeError(f"{name}[{key!r}] is a {type(value).__name__}: give a list of values, a domain such as tune.uniform(0, 1), a function, "
                            "or a dict of them")
        elif isinstance(value, Domain) and value.is_function():
            raise ValueError(f"{name}[{key!r}] is a sample_from: give the function itself")
