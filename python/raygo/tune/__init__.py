"""Hyperparameter search: comes later.  What is here is what it shares with raygo.train."""
from __future__ import annotations

from typing import Any

from raygo.train import Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig, SyncConfig
from raygo.train._settings import PlacementGroupFactory

__all__ = ["Checkpoint", "CheckpointConfig", "FailureConfig", "PlacementGroupFactory", "Result", "RunConfig", "SyncConfig"]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"raygo.tune.{name} is not there yet: this version of raygo has no raygo.tune")
