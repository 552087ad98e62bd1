"""Horovod is not in raygo."""
from raygo.train._absent import absent

__all__ = ["HorovodConfig"]

HorovodConfig = absent("raygo.train.horovod.HorovodConfig",
                       "Horovod is not developed any more. Use raygo.train.torch.TorchTrainer with DistributedDataParallel")
