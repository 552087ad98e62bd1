"""The settings of runs under the name that older scripts use; they live in raygo.train."""
from raygo.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, SyncConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]
