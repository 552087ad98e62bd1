"""Trials, and the experiments they belong to."""
from __future__ import annotations

from typing import Any

from raygo.tune.experiment.trial import Trial

__all__ = ["Experiment", "Trial", "_convert_to_experiment_list"]


def __getattr__(name: str) -> Any:
    if name in ("Experiment", "_convert_to_experiment_list"):        # loggers need only trials
        from raygo.tune.experiment import experiment

        return getattr(experiment, name)
    raise AttributeError(f"module 'raygo.tune.experiment' has no attribute {name!r}")
