"""What workers of a training run do together, through the driver.

For tensors in a loop use torch.distributed; these are for a value now and then.
"""
from raygo.train.collective.collectives import barrier, broadcast_from_rank_zero

__all__ = ["barrier", "broadcast_from_rank_zero"]
