"""What people read of a trial's failure."""
from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from raygo.exceptions import ActorUnschedulableError, RayError, RayTaskError

if TYPE_CHECKING:
    from raygo.tune.experiment.trial import Trial

__all__ = ["explained", "first_line"]


def explained(trial: Trial, error: BaseException) -> str:
    """What stands in error.txt."""
    if isinstance(error, RayTaskError):
        return str(error)
    if isinstance(error, ActorUnschedulableError) and trial.placement_group_factory is not None:
        wanted = ", ".join(f"{amount:g} {name}" for name, amount in trial.placement_group_factory.required_resources.items())
        return (f"{trial} cannot run: it asks for {wanted}. {error} A trial's resources are those of tune.with_resources, of a trainer's "
                "scaling_config, or one CPU.")
    if isinstance(error, (RayError, ValueError)):
        return "".join(traceback.format_exception_only(type(error), error))
    return "".join(traceback.format_exception(error))        # what a user's code raised in this process


def first_line(error: BaseException) -> str:
    """The same in a few words."""
    plain = getattr(error, "cause", None) or error
    lines = str(plain).strip().splitlines()
    return f"{type(plain).__name__}: {lines[0] if lines else ''}."
