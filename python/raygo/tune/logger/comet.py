"""The logger under the name that older scripts use."""
from raygo.air.integrations.comet import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
