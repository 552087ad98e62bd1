"""Horovod is not in raygo."""
from raygo.train.horovod.config import HorovodConfig
from raygo.train.horovod.horovod_trainer import HorovodTrainer

__all__ = ["HorovodConfig", "HorovodTrainer"]
