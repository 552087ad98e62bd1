"""What a training function may ask about its worker."""
from raygo.train.context import DistributedTrainContext, LocalTrainContext, TrainContext, get_context

__all__ = ["DistributedTrainContext", "LocalTrainContext", "TrainContext", "get_context"]
