"""The logger under the name that older scripts use."""
from raygo.air.integrations.mlflow import MLflowLoggerCallback

__all__ = ["MLflowLoggerCallback"]
