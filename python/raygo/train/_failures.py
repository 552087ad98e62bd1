"""Telling the cause of a failure from what follows from it."""
from __future__ import annotations

from raygo.exceptions import RayActorError, RayError, RayTaskError

# What ranks say when another one has gone: words of torch.distributed's backends and of raygo's collectives.
_CONSEQUENCES = ("connection closed by peer", "connection reset by peer", "gloo", "nccl", "broken pipe", "socket timeout", "distbackenderror",
                 "distnetworkerror", "connection was closed", "the group was aborted", "left the group", "grouperror")


class WorkersFailed(Exception):
    """Ranks failed in one attempt.

    Parameters
    ----------
    errors : dict of int to Exception
        By rank.
    pids : list of int
        Of all ranks.
    """

    def __init__(self, errors: dict[int, Exception], pids: list[int]) -> None:
        super().__init__(errors)
        self.errors = errors
        self.pids = pids
        self.rank = min(errors, key=lambda rank: (weight(errors[rank]), rank))
        self.cause = errors[self.rank]

    def first_line(self) -> str:
        """What happened first, to whom."""
        who = f"The worker of rank {self.rank} (pid {self.pids[self.rank]})"
        if died(self.cause):
            return f"{who} died: {_death(self.cause).rstrip('.')}."
        return f"{who} failed: {in_short(self.cause).rstrip('.')}."

    def text(self, folder: str, failures: int) -> str:
        """What a user is told."""
        others = [f"{rank} ({in_short(self.errors[rank])})" for rank in sorted(self.errors) if rank != self.rank]
        also = f" Ranks that failed after it: {', '.join(others)}." if others else ""
        return f"Training failed{f' {failures} times' if failures > 1 else ''}. {self.first_line()}{also} The run's folder is {folder}."


def died(error: Exception) -> bool:
    """Whether the process ended, and not only the loop in it."""
    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


def weight(error: Exception) -> int:
    """0 for a death, 1 for an error of the loop itself, 2 for one that may be the consequence of another rank's."""
    if died(error):
        return 0
    plain = getattr(error, "cause", None) or error
    text = f"{type(plain).__name__}: {plain}".lower()
    return 2 if any(word in text for word in _CONSEQUENCES) else 1


def in_short(error: Exception) -> str:
    """An error in one line, without the remote traceback."""
    plain = getattr(error, "cause", None) or error
    if isinstance(plain, RayActorError):
        return _death(plain)
    lines = str(plain).strip().splitlines()
    return f"{type(plain).__name__}: {lines[0]}" if lines else type(plain).__name__


def _death(error: Exception) -> str:
    text = str(error).strip()
    return text.rpartition(") died: ")[2] or text
