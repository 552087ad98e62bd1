"""Words that collective operations use."""
from enum import Enum


class ReduceOp(Enum):
    """How values are put together."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4
