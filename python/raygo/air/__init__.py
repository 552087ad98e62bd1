"""The settings of runs under the name that older scripts use; they live in raygo.train."""
from raygo.train import CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"]
