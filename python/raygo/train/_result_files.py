"""result.json, progress.csv and params.*: what a run says, a line for each report."""
from __future__ import annotations

import csv
import json
import os
from typing import Any

from raygo.train._storage import Mirror, StorageContext
from raygo.train.constants import EXPR_PARAM_FILE, EXPR_PARAM_PICKLE_FILE, EXPR_PROGRESS_FILE, RESULT_FILE_JSON


class ResultFiles:
    """Writes result.json and progress.csv, a line for each report."""

    def __init__(self, context: StorageContext, params: Any) -> None:
        self._folder = context.trial_driver_staging_path
        self._mirror = Mirror(context.files, self._folder, context.trial_fs_path)
        self._columns: list[str] | None = None
        with open(os.path.join(self._folder, EXPR_PARAM_FILE), "w") as file:
            json.dump(params, file, default=plain, indent=2, sort_keys=True, skipkeys=True)
        from raygo import cloudpickle

        with open(os.path.join(self._folder, EXPR_PARAM_PICKLE_FILE), "wb") as file:
            file.write(cloudpickle.dumps(params))
        open(os.path.join(self._folder, RESULT_FILE_JSON), "a").close()
        self._mirror.touch()

    def write(self, metrics: dict[str, Any]) -> None:
        """One more line."""
        with open(os.path.join(self._folder, RESULT_FILE_JSON), "a") as file:
            file.write(json.dumps(metrics, default=plain, skipkeys=True) + "\n")
        flat = _flatten(metrics)
        with open(os.path.join(self._folder, EXPR_PROGRESS_FILE), "a", newline="") as file:
            if self._columns is None:
                self._columns = list(flat)
                csv.writer(file).writerow(self._columns)
            csv.writer(file).writerow([flat.get(column, "") for column in self._columns])
        self._mirror.touch()

    def close(self) -> None:
        """Waits until the storage has all."""
        self._mirror.close()


def _flatten(metrics: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in metrics.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{key}/"))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def plain(value: Any) -> Any:
    """A value that JSON does not know, as one that it knows."""
    for turn in ("tolist", "item"):          # NumPy and torch
        if hasattr(value, turn):
            return getattr(value, turn)()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return repr(value)
