"""What a training function does to its model and data."""
from raygo.train.torch.train_loop_utils import (
    accelerate,
    backward,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)

__all__ = ["accelerate", "backward", "enable_reproducibility", "get_device", "get_devices", "prepare_data_loader", "prepare_model", "prepare_optimizer"]
