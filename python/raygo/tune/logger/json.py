"""result.json: a line for each report; params.json and params.pkl: the trial's config."""
from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from raygo.tune.logger.logger import LoggerCallback, TrialFiles, plain
from raygo.tune.result import EXPR_PARAM_FILE, EXPR_PARAM_PICKLE_FILE, EXPR_RESULT_FILE
from raygo.tune.utils.pickling import dumps

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["JsonLoggerCallback"]

_line = json.JSONEncoder(default=plain, skipkeys=True).encode
_indented = json.JSONEncoder(default=plain, skipkeys=True, indent=2).encode


class JsonLoggerCallback(LoggerCallback):
    """Writes result.json, params.json and params.pkl into each trial's folder."""

    def __init__(self) -> None:
        self._files = TrialFiles(EXPR_RESULT_FILE)
        self._configs: dict[str, dict[str, Any]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        self.update_config(trial, trial.config)
        self._files.open(trial)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial not in self._files:
            self.log_trial_start(trial)
        if trial.config is not self._configs.get(trial.trial_id):
            self.update_config(trial, trial.config)
        self._files.write(trial, (_line(result) + "\n").encode())

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._configs.pop(trial.trial_id, None)
        self._files.close(trial)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        self._files.close_all()

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        """Write the config again, as schedulers change it."""
        self._configs[trial.trial_id] = config
        for name, data in ((EXPR_PARAM_FILE, _indented(config).encode()), (EXPR_PARAM_PICKLE_FILE, dumps(config))):
            with open(os.path.join(trial.local_path, name), "wb", buffering=0) as file:
                file.write(data)
