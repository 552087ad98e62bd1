"""The same function on several workers."""
from raygo.train.data_parallel_trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
