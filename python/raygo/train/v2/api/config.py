"""Settings of a run."""
from raygo.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "LoggingConfig", "RunConfig", "ScalingConfig"]
