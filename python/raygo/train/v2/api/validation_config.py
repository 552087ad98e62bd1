"""How checkpoints are validated."""
from raygo.train import ValidationConfig, ValidationFn, ValidationTaskConfig

__all__ = ["ValidationConfig", "ValidationFn", "ValidationTaskConfig"]
