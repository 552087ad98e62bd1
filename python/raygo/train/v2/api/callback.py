"""Hooks into a run."""
from raygo.train._callbacks import RayTrainCallback, UserCallback

__all__ = ["RayTrainCallback", "UserCallback"]
