"""Distributed training: a function on several workers, their reports, checkpoints and results.

A trainer (`raygo.train.torch.TorchTrainer`) runs `train_loop_per_worker` on each worker of a group; there `report` sends metrics and
checkpoints, and `get_context` tells the worker its rank.  `fit` gives a `Result`.
"""
from raygo.train._callbacks import UserCallback
from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import DataConfig
from raygo.train._result import Result
from raygo.train._session import CheckpointUploadMode, get_checkpoint, get_dataset_shard, report
from raygo.train._settings import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig, SyncConfig
from raygo.train.backend import BackendConfig
from raygo.train.context import TrainContext, get_context
from raygo.train.data_parallel_trainer import DataParallelTrainer
from raygo.train.error import TrainingFailedError

TRAIN_DATASET_KEY = "train"

__all__ = ["BackendConfig", "Checkpoint", "CheckpointConfig", "CheckpointUploadMode", "DataConfig", "DataParallelTrainer", "FailureConfig",
           "LoggingConfig", "Result", "RunConfig", "ScalingConfig", "SyncConfig", "TRAIN_DATASET_KEY", "TrainContext",
           "TrainingFailedError", "UserCallback", "get_checkpoint", "get_context", "get_dataset_shard", "report"]

for _name in __all__:
    if getattr(globals()[_name], "__module__", "").startswith("raygo.train._"):
        globals()[_name].__module__ = "raygo.train"      # where users find it, so that reprs say so
