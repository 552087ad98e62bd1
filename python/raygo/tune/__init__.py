"""Hyperparameter search: many trainings at once, watched, stopped early, and found again after a crash.

`Tuner` runs a trainable for each configuration of a search space; `raygo.tune.report` tells it how a trial goes; `fit` gives a
`ResultGrid`.
"""
from __future__ import annotations

import importlib
from typing import Any

# Where each public name lives; imported when first asked for, so that `import raygo.tune` stays quick.
_NAMES = {
    "raygo.train": ("Checkpoint", "Result", "SyncConfig"),
    "raygo.train._settings": ("PlacementGroupFactory",),
    "raygo.tune.analysis": ("ExperimentAnalysis",),
    "raygo.tune.callback": ("Callback",),
    "raygo.tune.config": ("CheckpointConfig", "FailureConfig", "RunConfig"),
    "raygo.tune.context": ("TuneContext", "get_checkpoint", "get_context", "report"),
    "raygo.tune.error": ("TuneError",),
    "raygo.tune.experiment.experiment": ("Experiment",),
    "raygo.tune.progress_reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "raygo.tune.registry": ("register_env", "register_trainable"),
    "raygo.tune.result_grid": ("ResultGrid",),
    "raygo.tune.schedulers": ("create_scheduler",),
    "raygo.tune.search": ("create_searcher",),
    "raygo.tune.search.sample": ("choice", "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn", "quniform", "randint",
                                 "randn", "sample_from", "uniform"),
    "raygo.tune.search.variant_generator": ("grid_search",),
    "raygo.tune.stopper": ("Stopper",),
    "raygo.tune.trainable": ("Trainable", "with_parameters", "with_resources"),
    "raygo.tune.tune": ("run", "run_experiments"),
    "raygo.tune.tune_config": ("ResumeConfig", "TuneConfig"),
    "raygo.tune.tuner": ("Tuner",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
_SUBMODULES = ("analysis", "callback", "logger", "schedulers", "search", "stopper", "trainable", "utils")

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is not None:
        value = getattr(importlib.import_module(module), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"raygo.tune.{name}")
    else:
        raise AttributeError(f"module 'raygo.tune' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
