"""A trainer that runs inside a trial reports as the trial."""
from __future__ import annotations

from typing import Any

from raygo.train import UserCallback

__all__ = ["CHECKPOINT_PATH_KEY", "TuneReportCallback"]

# The metric that says where the trainer has put its checkpoint.
CHECKPOINT_PATH_KEY = "checkpoint_path"


class TuneReportCallback(UserCallback):
    """Give it to the RunConfig of a trainer that a trainable runs: what rank 0 reports is reported to the search.

    Checkpoints stay where the trainer puts them; `CHECKPOINT_PATH_KEY` in the metrics says where.

    Examples
    --------
    >>> def trial(config):
    ...     run = raygo.train.RunConfig(callbacks=[TuneReportCallback()])
    ...     TorchTrainer(loop, train_loop_config=config, run_config=run).fit()
    """

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """Pass the report of the lowest rank on."""
        from raygo.tune import report

        said = dict(metrics[0])
        if checkpoint is not None:
            said[CHECKPOINT_PATH_KEY] = checkpoint.path
        report(said)
