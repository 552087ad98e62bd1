"""Data-parallel training with PyTorch."""
from raygo.train.torch import TorchTrainer

__all__ = ["TorchTrainer"]
