"""What a run gives."""
from raygo.train import Result

__all__ = ["Result"]
