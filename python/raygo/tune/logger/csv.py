"""progress.csv: a row for each report."""
from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Any

from raygo.tune.logger.logger import LoggerCallback, TrialFiles, flatten
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
        self._columns: dict[str, dict[str, None]] = {}
        self._files = TrialFiles(EXPR_PROGRESS_FILE)

    def log_trial_start(self, trial: Trial) -> None:
        path = self._files.path(trial)
        columns: list[str] = []
        if os.path.exists(path):         # a trial that was begun before
            with open(path, newline="") as file:
                columns = next(csv.reader(file), [])
        self._files.open(trial)
        self._columns[trial.trial_id] = dict.fromkeys(columns)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial not in self._files:
            self.log_trial_start(trial)
        row = flatten({key: value for key, value in result.items() if key != "config"})
        columns = self._columns[trial.trial_id]
        if row.keys() <= columns.keys():
            self._files.write(trial, _lines([[row.get(key, "") for key in columns]]))
            return
        begun = bool(columns)
        columns.update(dict.fromkeys(row))
        if begun:
            self._widen(trial, list(columns))
        self._files.write(trial, _lines([*([] if begun else [list(columns)]), [row.get(key, "") for key in columns]]))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._columns.pop(trial.trial_id, None)
        self._files.close(trial)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        self._columns.clear()
        self._files.close_all()

    def _widen(self, trial: Trial, columns: list[str]) -> None:
        """The same rows under a longer head."""
        path = self._files.path(trial)
        with open(path, newline="") as old:
            rows = list(csv.reader(old))[1:]
        with open(path + ".tmp", "wb") as new:
            new.write(_lines([columns, *(row + [""] * (len(columns) - len(row)) for row in rows)]))
        os.replace(path + ".tmp", path)
        self._files.open(trial)


def _lines(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
