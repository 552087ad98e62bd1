"""How reports bring checkpoints to the storage, and how those are validated."""
from raygo.train import CheckpointConsistencyMode, CheckpointUploadMode

__all__ = ["CheckpointConsistencyMode", "CheckpointUploadMode"]
