"""What a trainable may ask about its trial."""
from __future__ import annotations

from typing import Any

from raygo.train import _session
from raygo.train.context import TrainContext

__all__ = ["TuneContext", "get_checkpoint", "get_context", "report"]


class TuneContext(TrainContext):
    """The trial; see `raygo.tune.get_context`."""


_context = TuneContext()


def get_context() -> TuneContext:
    """What a trainable may ask about its trial: its id, name, folder and resources.

    Examples
    --------
    >>> raygo.tune.get_context().get_trial_id()          # doctest: +SKIP
    'f3c1a_00000'
    """
    return _context


def report(metrics: dict[str, Any], *, checkpoint: Any = None) -> None:
    """Tell the driver how the trial goes, and wait for its decision: a trial that is to stop does not return from here.

    Parameters
    ----------
    metrics : dict
        Values of this round.
    checkpoint : Checkpoint, optional
        Files to keep; copied to the trial's folder before this returns.

    Examples
    --------
    >>> raygo.tune.report({"loss": 0.5})                 # doctest: +SKIP
    """
    from raygo.train import Checkpoint

    if _session.current is None:
        _session._outside("report")
        return
    if not isinstance(metrics, dict):
        raise TypeError(f"report takes a dict of metrics, not {type(metrics).__name__}")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"report: checkpoint is a {type(checkpoint).__name__}: give Checkpoint.from_directory(folder)")
    _session.report(metrics, checkpoint=checkpoint)


def get_checkpoint() -> Any:
    """The checkpoint to go on from; None at a fresh start."""
    return _session.get_checkpoint()
