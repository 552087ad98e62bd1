"""The trainer under the name that some scripts use."""
from raygo.train.lightgbm.lightgbm_trainer import LightGBMTrainer

__all__ = ["LightGBMTrainer"]
