"""The logger under the name that older scripts use."""
from raygo.air.integrations.wandb import WandbLoggerCallback

__all__ = ["WandbLoggerCallback"]
