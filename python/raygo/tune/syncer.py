"""How artifacts reach the storage."""
from raygo.train import SyncConfig

__all__ = ["SyncConfig"]
