"""Trainers' base under the name that some scripts use; the iterator that Ray's older trainers are made of is not in raygo."""
from typing import TypeVar

from raygo.train._absent import absent
from raygo.train.base_trainer import BaseTrainer, TrainingFailedError

__all__ = ["BaseTrainer", "S", "T", "TrainingFailedError", "TrainingIterator"]

T = TypeVar("T")
S = TypeVar("S")

TrainingIterator = absent("raygo.train.trainer.TrainingIterator",
                          "a trainer is not made of parts that can be taken out. Use fit() with RunConfig(callbacks=[raygo.train.UserCallback])")
