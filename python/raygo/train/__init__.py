"""Distributed training: a function on several workers, their reports, checkpoints and results.

A trainer (`raygo.train.torch.TorchTrainer`) runs `train_loop_per_worker` on each worker of a group; there `report` sends metrics and
checkpoints, and `get_context` tells the worker its rank.  `fit` gives a `Result`.
"""
from raygo.train._callbacks import UserCallback
from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import DataConfig
from raygo.train._reported import (
    CheckpointConsistencyMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    ValidationConfig,
    ValidationFn,
    ValidationTaskConfig,
)
from raygo.train._result import Result
from raygo.train._session import (
    CheckpointUploadMode,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_dataset_shard,
    get_preemption_info,
    report,
)
from raygo.train._settings import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig, SyncConfig
from raygo.train.backend import BackendConfig
from raygo.train.context import TrainContext, get_context
from raygo.train.data_parallel_trainer import DataParallelTrainer
from raygo.train.error import ControllerError, NCCLHangError, PreemptionError, PreemptionInfo, TrainingFailedError, WorkerGroupError

TRAIN_DATASET_KEY = "train"

__all__ = ["BackendConfig", "Checkpoint", "CheckpointConfig", "CheckpointConsistencyMode", "CheckpointUploadMode", "ControllerError", "DataConfig",
           "DataParallelTrainer", "FailureConfig", "LoggingConfig", "NCCLHangError", "PreemptionError", "PreemptionInfo", "ReportedCheckpoint",
           "ReportedCheckpointStatus", "Result", "RunConfig", "ScalingConfig", "SyncConfig", "TRAIN_DATASET_KEY", "TrainContext",
           "TrainingFailedError", "UserCallback", "ValidationConfig", "ValidationFn", "ValidationTaskConfig", "WorkerGroupError",
           "get_all_reported_checkpoints", "get_checkpoint", "get_context", "get_dataset_shard", "get_preemption_info", "report"]

for _name in __all__:
    if getattr(globals()[_name], "__module__", "").startswith("raygo.train._"):
        globals()[_name].__module__ = "raygo.train"      # where users find it, so that reprs say so
