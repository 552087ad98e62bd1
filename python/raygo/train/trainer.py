"""The iterator that Ray's older trainers are made of is not in raygo."""
from typing import TypeVar

from raygo.train._absent import absent

__all__ = ["S", "T", "TrainingIterator"]

T = TypeVar("T")
S = TypeVar("S")

TrainingIterator = absent("raygo.train.trainer.TrainingIterator",
                          "a trainer is not made of parts that can be taken out. Use fit() with RunConfig(callbacks=[raygo.train.UserCallback])")
