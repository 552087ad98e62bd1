"""What loggers of services share."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from raygo.air.integrations._sender import Sender
from raygo.tune.logger.logger import LoggerCallback, flatten

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

# How long the end of an experiment waits for a service.
PATIENCE_S = 60.0


class SentLogger(LoggerCallback):
    """A logger whose calls go through a `Sender`; it can be pickled, without what is under way."""

    _SERVICE = "the tracker"
    _patience = PATIENCE_S

    def __init__(self) -> None:
        self._sender: Sender | None = None

    def _send(self, call: Any, *args: Any) -> None:
        if self._sender is None:
            self._sender = Sender(self._SERVICE)
        self._sender.send(call, *args)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Wait until the service has all."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close(self._patience)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": None}


def numbers(result: dict[str, Any], left_out: tuple[str, ...] = ("config",)) -> dict[str, float]:
    """The finite and infinite numbers of a report, ``a/b`` for b within a."""
    found = {}
    for name, value in flatten({key: value for key, value in result.items() if key not in left_out}).items():
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if not math.isnan(number):
            found[name] = number
    return found


def parameters(config: dict[str, Any] | None) -> dict[str, Any]:
    """The config, flat, without what are callbacks."""
    return flatten({key: value for key, value in (config or {}).items() if key != "callbacks"})


def rank_zero() -> bool:
    """Whether this process is a run's first worker, a trial, or neither."""
    from raygo.train import _session

    return _session.current is None or _session.current.place.world_rank == 0


def identity() -> tuple[str | None, str | None, str | None]:
    """The id and name of the trial that this process works for, and its experiment's; None where there is none."""
    from raygo.train import _session

    if _session.current is None:
        return None, None, None
    storage = _session.current.storage
    return storage.trial_id, storage.trial_name, storage.experiment_dir_name
