"""Hooks into a run, called in the driver."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.train._checkpoint import Checkpoint


class UserCallback:
    """Subclass it and give an instance to ``RunConfig(callbacks=[...])``."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """After all workers have reported.

        Parameters
        ----------
        run_context : object
            The run: `run_config` and the trainer's other settings.
        metrics : list of dict
            What each rank reported, by rank.
        checkpoint : Checkpoint, optional
            The checkpoint that was stored with it.
        """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """After workers failed; `worker_exceptions` has their errors by rank."""
