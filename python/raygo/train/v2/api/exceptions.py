"""What goes wrong in training."""
from raygo.train.error import ControllerError, NCCLHangError, PreemptionError, TrainingFailedError, WorkerGroupError

__all__ = ["ControllerError", "NCCLHangError", "PreemptionError", "TrainingFailedError", "WorkerGroupError"]
