"""Horovod is not in raygo."""
from raygo.train.horovod import HorovodTrainer

__all__ = ["HorovodTrainer"]
