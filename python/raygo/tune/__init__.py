"""Hyperparameter search: many trainings at once, watched, stopped early, and found again after a crash.

`Tuner` runs a trainable for each configuration of a search space; `raygo.tune.report` tells it how a trial goes; `fit` gives a
`ResultGrid`.
"""
from __future__ import annotations

import importlib
from typing import Any

# Where each public name lives; imported when first asked for, so that `import raygo.tune` stays quick.
_NAMES = {
    "raygo.train": ("Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "SyncConfig"),
    "raygo.train._settings": ("PlacementGroupFactory",),
    "raygo.tune.callback": ("Callback",),
    "raygo.tune.error": ("TuneError",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'raygo.tune' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
