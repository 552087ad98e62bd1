"""Who runs, and for how long."""
from __future__ import annotations

import importlib
from typing import Any

from raygo.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from raygo.tune.schedulers.hb_bohb import HyperBandForBOHB
from raygo.tune.schedulers.hyperband import HyperBandScheduler
from raygo.tune.schedulers.median_stopping_rule import MedianStoppingRule
from raygo.tune.schedulers.pbt import PopulationBasedTraining, PopulationBasedTrainingReplay
from raygo.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler
from raygo.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler", "FIFOScheduler", "HyperBandForBOHB", "HyperBandScheduler", "MedianStoppingRule", "PB2",
           "PopulationBasedTraining", "PopulationBasedTrainingReplay", "ResourceChangingScheduler", "SCHEDULER_IMPORT", "TrialScheduler",
           "create_scheduler"]

_BY_NAME = {
    "fifo": ("trial_scheduler", "FIFOScheduler"), "async_hyperband": ("async_hyperband", "AsyncHyperBandScheduler"),
    "asynchyperband": ("async_hyperband", "AsyncHyperBandScheduler"), "asha": ("async_hyperband", "AsyncHyperBandScheduler"),
    "median_stopping_rule": ("median_stopping_rule", "MedianStoppingRule"), "medianstopping": ("median_stopping_rule", "MedianStoppingRule"),
    "hyperband": ("hyperband", "HyperBandScheduler"), "hb_bohb": ("hb_bohb", "HyperBandForBOHB"), "pbt": ("pbt", "PopulationBasedTraining"),
    "pbt_replay": ("pbt", "PopulationBasedTrainingReplay"), "pb2": ("pb2", "PB2"),
    "resource_changing": ("resource_changing_scheduler", "ResourceChangingScheduler"),
}


def _importer(module: str, name: str) -> Any:
    return lambda: getattr(importlib.import_module(f"raygo.tune.schedulers.{module}"), name)


SCHEDULER_IMPORT = {key: _importer(*where) for key, where in _BY_NAME.items()}


def __getattr__(name: str) -> Any:
    if name == "PB2":        # needs scikit-learn only when it is used
        return SCHEDULER_IMPORT["pb2"]()
    raise AttributeError(f"module 'raygo.tune.schedulers' has no attribute {name!r}")


def create_scheduler(scheduler: str, **kwargs: Any) -> Any:
    """A scheduler by its name, with those of the parameters that it has.

    Parameters
    ----------
    scheduler : str
        fifo, async_hyperband, asha, median_stopping_rule, hyperband, hb_bohb, pbt, pbt_replay, pb2 or resource_changing.
    """
    import inspect

    name = scheduler.lower()
    if name not in SCHEDULER_IMPORT:
        raise ValueError(f"scheduler is {scheduler!r}: give one of {', '.join(sorted(SCHEDULER_IMPORT))}")
    cls = SCHEDULER_IMPORT[name]()
    parameters = inspect.signature(cls.__init__).parameters
    return cls(**{key: value for key, value in kwargs.items() if key in parameters})
