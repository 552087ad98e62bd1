"""XLA devices are not in raygo."""
from raygo.train._absent import absent

__all__ = ["TorchXLAConfig"]

TorchXLAConfig = absent("raygo.train.torch.xla.TorchXLAConfig", "it knows no TPUs or Trainium. Use raygo.train.torch.TorchConfig on CPUs and GPUs")
