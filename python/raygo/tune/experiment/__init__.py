"""Trials, and the experiments they belong to."""
from raygo.tune.experiment.trial import Trial

__all__ = ["Trial"]
