"""The settings of runs under the name that older scripts use; they live in raygo.train and raygo.tune."""
from __future__ import annotations

from dataclasses import dataclass

from raygo import train
from raygo.train import ScalingConfig, SyncConfig
from raygo.tune.config import CheckpointConfig, FailureConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]


@dataclass
class RunConfig(train.RunConfig):
    """`raygo.train.RunConfig`; `local_dir` is called storage_path."""

    local_dir: str | None = None

    def __post_init__(self) -> None:
        if self.local_dir is not None:
            raise ValueError("RunConfig(local_dir=...) is storage_path now")
        super().__post_init__()
