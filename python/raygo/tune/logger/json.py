"""result.json: a line for each report; params.json and params.pkl: the trial's config."""
from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from raygo import cloudpickle
from raygo.tune.logger.logger import LoggerCallback, plain
from raygo.tune.result import EXPR_PARAM_FILE, EXPR_PARAM_PICKLE_FILE, EXPR_RESULT_FILE

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["JsonLoggerCallback"]


class JsonLoggerCallback(LoggerCallback):
    """Writes result.json, params.json and params.pkl into each trial's folder."""

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}
        self._configs: dict[str, dict[str, Any]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        self.update_config(trial, trial.config)
        if (old := self._files.pop(trial.trial_id, None)) is not None:
            old.close()
        self._files[trial.trial_id] = open(os.path.join(trial.local_path, EXPR_RESULT_FILE), "ab", buffering=0)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._files:
            self.log_trial_start(trial)
        if trial.config is not self._configs.get(trial.trial_id):
            self.update_config(trial, trial.config)
        # One write for a line, so that a driver that is killed does not leave half of one.
        self._files[trial.trial_id].write((json.dumps(result, default=plain, skipkeys=True) + "\n").encode())

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._configs.pop(trial.trial_id, None)
        if (file := self._files.pop(trial.trial_id, None)) is not None:
            file.close()

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        """Write the config again, as schedulers change it."""
        self._configs[trial.trial_id] = config
        with open(os.path.join(trial.local_path, EXPR_PARAM_FILE), "w") as file:
            file.write(json.dumps(config, default=plain, indent=2, skipkeys=True))
        with open(os.path.join(trial.local_path, EXPR_PARAM_PICKLE_FILE), "wb") as raw:
            raw.write(cloudpickle.dumps(config))
