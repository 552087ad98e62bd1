"""Where configurations come from: random and grid search, and libraries that learn from what was tried."""
from __future__ import annotations

import importlib
from typing import Any

from raygo.tune.search.basic_variant import BasicVariantGenerator
from raygo.tune.search.concurrency_limiter import ConcurrencyLimiter
from raygo.tune.search.repeater import Repeater
from raygo.tune.search.search_algorithm import SearchAlgorithm
from raygo.tune.search.search_generator import SearchGenerator
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import UNDEFINED_METRIC_MODE, UNDEFINED_SEARCH_SPACE, UNRESOLVED_SEARCH_SPACE
from raygo.tune.search.variant_generator import grid_search

__all__ = ["BasicVariantGenerator", "ConcurrencyLimiter", "Repeater", "SEARCH_ALG_IMPORT", "SearchAlgorithm", "SearchGenerator", "Searcher",
           "UNDEFINED_METRIC_MODE", "UNDEFINED_SEARCH_SPACE", "UNRESOLVED_SEARCH_SPACE", "create_searcher", "grid_search"]

_BY_NAME = {
    "random": ("basic_variant", "BasicVariantGenerator"), "variant_generator": ("basic_variant", "BasicVariantGenerator"),
    "ax": ("ax", "AxSearch"), "bayesopt": ("bayesopt", "BayesOptSearch"), "bohb": ("bohb", "TuneBOHB"), "hebo": ("hebo", "HEBOSearch"),
    "hyperopt": ("hyperopt", "HyperOptSearch"), "nevergrad": ("nevergrad", "NevergradSearch"), "optuna": ("optuna", "OptunaSearch"),
    "zoopt": ("zoopt", "ZOOptSearch"),
}


def _importer(module: str, name: str) -> Any:
    return lambda: getattr(importlib.import_module(f"raygo.tune.search.{module}"), name)


SEARCH_ALG_IMPORT = {key: _importer(*where) for key, where in _BY_NAME.items()}


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """A search algorithm by its name, with those of the parameters that it has.

    Parameters
    ----------
    search_alg : str
        random, ax, bayesopt, bohb, hebo, hyperopt, nevergrad, optuna or zoopt.
    """
    import inspect

    name = search_alg.lower()
    if name not in SEARCH_ALG_IMPORT:
        raise ValueError(f"search_alg is {search_alg!r}: give one of {', '.join(sorted(SEARCH_ALG_IMPORT))}")
    cls = SEARCH_ALG_IMPORT[name]()
    parameters = inspect.signature(cls.__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        kwargs = {key: value for key, value in kwargs.items() if key in parameters}
    return cls(**kwargs)
