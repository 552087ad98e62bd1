"""Machines that are about to be taken away."""
from raygo.train.error import PreemptionInfo

__all__ = ["PreemptionInfo"]
