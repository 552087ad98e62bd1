"""Training with PyTorch: `TorchTrainer` and what a training function needs around its loop."""
from raygo.train.torch.config import TorchConfig
from raygo.train.torch.torch_checkpoint import TorchCheckpoint
from raygo.train.torch.torch_trainer import TorchTrainer
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

__all__ = ["TorchCheckpoint", "TorchConfig", "TorchTrainer", "accelerate", "backward", "enable_reproducibility", "get_device", "get_devices",
           "prepare_data_loader", "prepare_model", "prepare_optimizer"]
