"""The folder of a run, laid out as Ray does::

    storage_path/name/                              the run (experiment)
        TorchTrainer_<id>_00000_0_<time>/           its trial; Result.path
            result.json  progress.csv               one line for each report
            params.json  params.pkl                 train_loop_config
            checkpoint_000000/ ...                  whole checkpoints only

Ranks first copy their files to ``.incoming/<report>/<rank>/``.  The driver moves them into place when the report is complete, rank 0
last so that it wins where ranks have files of one name: a folder named checkpoint_* is never half a checkpoint.
"""
from __future__ import annotations

import csv
import json
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from typing import Any

from raygo.train.constants import EXPR_PARAM_FILE, EXPR_PARAM_PICKLE_FILE, EXPR_PROGRESS_FILE, RESULT_FILE_JSON

_INCOMING = ".incoming"


@dataclass(frozen=True)
class StorageContext:
    """Where things of a run are."""

    storage_fs_path: str
    experiment_dir_name: str
    trial_dir_name: str
    trial_id: str
    trial_name: str

    @property
    def experiment_fs_path(self) -> str:
        """The run's folder."""
        return os.path.join(self.storage_fs_path, self.experiment_dir_name)

    @property
    def trial_fs_path(self) -> str:
        """The trial's folder."""
        return os.path.join(self.experiment_fs_path, self.trial_dir_name)

    @property
    def storage_filesystem(self) -> Any:
        """Where the folders are, as pyarrow names it."""
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    def build_checkpoint_path_from_name(self, name: str) -> str:
        """The path of a checkpoint."""
        return os.path.join(self.trial_fs_path, name)

    def incoming(self, report: int, rank: int | None = None) -> str:
        """Where a rank puts its files of a report, or the folder of all ranks."""
        folder = os.path.join(self.trial_fs_path, _INCOMING, f"{report:06d}")
        return folder if rank is None else os.path.join(folder, str(rank))


def new_run(storage_path: str, name: str | None, trainer: str) -> StorageContext:
    """Makes the folders of a fresh run."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    trial_id = f"{uuid.uuid4().hex[:5]}_00000"
    context = StorageContext(storage_path, name or f"{trainer}_{stamp}", f"{trainer}_{trial_id}_0_{stamp}", trial_id, f"{trainer}_{trial_id}")
    os.makedirs(context.trial_fs_path)
    return context


def persist(source: str, context: StorageContext, report: int, rank: int) -> None:
    """In a worker: copies a rank's files to where the driver finds them."""
    shutil.copytree(source, context.incoming(report, rank), dirs_exist_ok=True)


def commit(context: StorageContext, report: int, name: str) -> str:
    """Moves what the ranks brought into the checkpoint `name`, and returns its path.  Late files join those that are there."""
    incoming = context.incoming(report)
    final = context.build_checkpoint_path_from_name(name)
    merged = final if os.path.isdir(final) else incoming + ".merged"
    os.makedirs(merged, exist_ok=True)
    for rank in sorted(os.listdir(incoming), key=int, reverse=True):
        _move_tree(os.path.join(incoming, rank), merged)
    shutil.rmtree(incoming)
    if merged != final:
        os.replace(merged, final)
    return final


def _move_tree(source: str, target: str) -> None:
    for base, folders, files in os.walk(source):
        place = os.path.normpath(os.path.join(target, os.path.relpath(base, source)))
        for folder in folders:
            os.makedirs(os.path.join(place, folder), exist_ok=True)
        for file in files:
            os.replace(os.path.join(base, file), os.path.join(place, file))


def discard_incoming(context: StorageContext, report: int | None = None) -> None:
    """Removes what ranks brought for a report that came to nothing, or for all of them."""
    folder = os.path.join(context.trial_fs_path, _INCOMING) if report is None else context.incoming(report)
    shutil.rmtree(folder, ignore_errors=True)


class ResultFiles:
    """Writes result.json and progress.csv, a line for each report."""

    def __init__(self, context: StorageContext, params: Any) -> None:
        self._folder = context.trial_fs_path
        self._columns: list[str] | None = None
        with open(os.path.join(self._folder, EXPR_PARAM_FILE), "w") as file:
            json.dump(params, file, default=plain, indent=2, sort_keys=True, skipkeys=True)
        from raygo import cloudpickle

        with open(os.path.join(self._folder, EXPR_PARAM_PICKLE_FILE), "wb") as file:
            file.write(cloudpickle.dumps(params))
        open(os.path.join(self._folder, RESULT_FILE_JSON), "a").close()

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
