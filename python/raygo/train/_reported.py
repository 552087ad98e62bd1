"""Checkpoints that a run has reported, and their validation."""
from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import raygo
from raygo.train._checkpoint import Checkpoint

if TYPE_CHECKING:
    from raygo import ObjectRef

__all__ = ["CheckpointConsistencyMode", "ReportedCheckpoint", "ReportedCheckpointStatus", "ValidationConfig", "ValidationFn", "ValidationTaskConfig"]


class CheckpointConsistencyMode(enum.Enum):
    """What `get_all_reported_checkpoints` waits for: that checkpoints are stored, or also that they are validated."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(enum.Enum):
    """How far a checkpoint has come."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


@dataclass
class ReportedCheckpoint:
    """A checkpoint with its report; once it is validated, with what the validation gave as well."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus


class ValidationFn(Protocol):
    """A function that validates a checkpoint, in a task of its own, and gives metrics."""

    def __call__(self, checkpoint: Checkpoint, **kwargs: Any) -> dict[str, Any]: ...


@dataclass
class ValidationTaskConfig:
    """How one checkpoint is validated.

    Parameters
    ----------
    fn_kwargs : dict, optional
        Arguments of the function, besides the checkpoint.
    timeout_s : float, optional
        How long it may take.
    """

    fn_kwargs: dict[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ValueError(f"ValidationTaskConfig: timeout_s is {self.timeout_s}: give more than 0, or None for no limit")


class ValidationConfig:
    """How checkpoints are validated that are reported with ``validation=True``, beside training.

    Parameters
    ----------
    fn : callable
        Takes the checkpoint and gives metrics, which join those of its report.
    task_config : ValidationTaskConfig, optional
        Arguments and time limit, where `report` says nothing else.
    ray_remote_kwargs : dict, optional
        Options of the task, as `raygo.remote` takes them.  Its CPUs are beside those of the workers.
    """

    def __init__(self, fn: Callable[..., dict[str, Any]], task_config: ValidationTaskConfig | None = None,
                 ray_remote_kwargs: dict[str, Any] | None = None) -> None:
        if not callable(fn):
            raise ValueError(f"ValidationConfig: fn is {fn!r}: give a function that takes a checkpoint and gives metrics")
        self.fn = fn
        self.task_config = task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = dict(ray_remote_kwargs or {})


@dataclass
class Validations:
    """The validations of a run that are under way."""

    config: ValidationConfig | None
    running: dict[ObjectRef, tuple[ReportedCheckpoint, float | None]] = field(default_factory=dict)

    def start(self, reported: ReportedCheckpoint, how: Any) -> None:
        """Validate a checkpoint as `report(validation=how)` says."""
        assert self.config is not None       # `report` has seen to it
        own = how if isinstance(how, ValidationTaskConfig) else ValidationTaskConfig()
        arguments = {**(self.config.task_config.fn_kwargs or {}), **(own.fn_kwargs or {})}
        limit = own.timeout_s if own.timeout_s is not None else self.config.task_config.timeout_s
        options = self.config.ray_remote_kwargs
        task = (raygo.remote(**options) if options else raygo.remote)(self.config.fn)
        reported.status = ReportedCheckpointStatus.PENDING_VALIDATION
        self.running[task.remote(reported.checkpoint, **arguments)] = (reported, None if limit is None else time.monotonic() + limit)

    def in_use(self) -> set[str]:
        """The paths of the checkpoints that are being validated."""
        return {reported.checkpoint.path for reported, _ in self.running.values()}

    def seen(self, ref: ObjectRef) -> Exception | None:
        """A validation has ended; why it failed."""
        reported, _ = self.running.pop(ref)
        try:
            found = raygo.get(ref)
            if not isinstance(found, dict):
                raise TypeError(f"the validation of {reported.checkpoint} gave a {type(found).__name__}: it must give a dict of metrics")
        except Exception as error:
            reported.status = ReportedCheckpointStatus.VALIDATION_FAILED
            return error
        reported.metrics.update(found)
        reported.status = ReportedCheckpointStatus.VALIDATED
        return None

    def expire(self) -> list[ReportedCheckpoint]:
        """Ends validations that have taken too long; their checkpoints."""
        late = [(ref, reported) for ref, (reported, deadline) in self.running.items() if deadline is not None and time.monotonic() >= deadline]
        for ref, reported in late:
            del self.running[ref]
            raygo.cancel(ref, force=True)
            reported.status = ReportedCheckpointStatus.VALIDATION_TIMEOUT
        return [reported for _, reported in late]

    def patience(self) -> float | None:
        """How long until the next is late."""
        deadlines = [deadline for _, deadline in self.running.values() if deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
