"""What `raygo.train.lightgbm` offers, under the paths of Ray's newer trainers."""
from raygo.train.lightgbm import LightGBMTrainer

__all__ = ["LightGBMTrainer"]
