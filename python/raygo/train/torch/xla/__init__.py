"""XLA devices are not in raygo."""
from raygo.train.torch.xla.config import TorchXLAConfig

__all__ = ["TorchXLAConfig"]
