"""progress.csv: a row for each report."""
from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Any

from raygo.tune.logger.logger import LoggerCallback, flatten
from raygo.tune.result import EXPR_PROGRESS_FILE

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["CSVLoggerCallback"]


class CSVLoggerCallback(LoggerCallback):
    """Writes progress.csv into each trial's folder.

    Reports come without their config, nested metrics as ``a/b``.  A metric that first appears later adds a column: the file is then
    written again, with nothing in that column before.
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[str]] = {}
        self._files: dict[str, Any] = {}

    def log_trial_start(self, trial: Trial) -> None:
        self._close(trial)
        path = os.path.join(trial.local_path, EXPR_PROGRESS_FILE)
        columns: list[str] = []
        if os.path.exists(path):         # a trial that was begun before
            with open(path, newline="") as file:
                columns = next(csv.reader(file), [])
        self._columns[trial.trial_id] = columns
        self._files[trial.trial_id] = open(path, "ab", buffering=0)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._files:
            self.log_trial_start(trial)
        row = flatten({key: value for key, value in result.items() if key != "config"})
        columns = self._columns[trial.trial_id]
        fresh = [key for key in row if key not in columns]
        if fresh:
            columns.extend(fresh)
            self._widen(trial, columns)
        self._files[trial.trial_id].write(_line([row.get(key, "") for key in columns]))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._close(trial)

    def _close(self, trial: Trial) -> None:
        self._columns.pop(trial.trial_id, None)
        if (file := self._files.pop(trial.trial_id, None)) is not None:
            file.close()

    def _widen(self, trial: Trial, columns: list[str]) -> None:
        """The same rows under a longer head."""
        path = os.path.join(trial.local_path, EXPR_PROGRESS_FILE)
        with open(path, newline="") as old:
            rows = list(csv.reader(old))[1:]
        if not rows:
            self._files[trial.trial_id].write(_line(columns))
            return
        with open(path + ".tmp", "wb") as new:
            new.write(_line(columns) + b"".join(_line(row + [""] * (len(columns) - len(row))) for row in rows))
        self._files[trial.trial_id].close()
        os.replace(path + ".tmp", path)
        self._files[trial.trial_id] = open(path, "ab", buffering=0)


def _line(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
