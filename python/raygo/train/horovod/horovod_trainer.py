"""Horovod is not in raygo."""
from raygo.train._absent import absent

__all__ = ["HorovodTrainer"]

HorovodTrainer = absent("raygo.train.horovod.HorovodTrainer",
                       "Horovod is not developed any more. Use raygo.train.torch.TorchTrainer with DistributedDataParallel")
