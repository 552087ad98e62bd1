"""Checkpoints with their reports."""
from raygo.train import ReportedCheckpoint, ReportedCheckpointStatus

__all__ = ["ReportedCheckpoint", "ReportedCheckpointStatus"]
