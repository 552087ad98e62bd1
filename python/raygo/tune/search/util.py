"""Texts that several searchers need."""
from __future__ import annotations

import inspect
import logging
from typing import Any

log = logging.getLogger("raygo.tune")

UNRESOLVED_SEARCH_SPACE = "`{par}` has domains of raygo.tune, which {cls} does not take there: give them as `space` to {cls}, or as the Tuner's param_space."
UNDEFINED_SEARCH_SPACE = "{cls} has no search space: give one as `{space}`, or as the Tuner's param_space."
UNDEFINED_METRIC_MODE = "{cls} does not know what to optimise (metric={metric}, mode={mode}): give both to it or to TuneConfig."


def tell(method: Any, *args: Any, **spec: Any) -> bool:
    """Call a `set_search_properties`; a user's may not take what there is to know beyond metric, mode and space."""
    try:
        inspect.signature(method).bind(*args, **spec)
    except TypeError:
        spec = {}
    return bool(method(*args, **spec))


def needs(package: str, module: str, searcher: str) -> Any:
    """Import what a searcher is built on, or say what to install."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{searcher} needs the package {package}: pip install {package} (importing {module} said: {error})") from error
