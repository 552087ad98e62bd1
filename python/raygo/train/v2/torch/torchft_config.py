"""torchft is not in raygo."""
from raygo.train._absent import absent

__all__ = ["LighthouseServerActor", "TorchftConfig"]

_WHY = ("groups that lose ranks are started again from the last checkpoint. Use raygo.train.FailureConfig(max_failures=...) "
        "and ScalingConfig(num_workers=(least, most))")
LighthouseServerActor = absent("raygo.train.v2.torch.torchft_config.LighthouseServerActor", _WHY)
TorchftConfig = absent("raygo.train.v2.torch.torchft_config.TorchftConfig", _WHY)
