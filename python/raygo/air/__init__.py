"""The settings of runs, and resources, under the name that older scripts use."""
from raygo.air._resources import AcquiredResources, DataBatchType, ResourceRequest
from raygo.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from raygo.train import Result

__all__ = ["AcquiredResources", "CheckpointConfig", "DataBatchType", "FailureConfig", "ResourceRequest", "Result", "RunConfig", "ScalingConfig"]
