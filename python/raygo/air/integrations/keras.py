"""Keras's callback under the name that older scripts use."""
from raygo.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
