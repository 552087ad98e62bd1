"""What a run gives."""
from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from raygo.train._checkpoint import Checkpoint
from raygo.train._files import Files, join, resolve
from raygo.train._storage import StorageContext
from raygo.train.constants import CHECKPOINT_DIR_NAME, CHECKPOINT_MANAGER_SNAPSHOT_FILENAME, EXPR_PARAM_FILE, RESULT_FILE_JSON

if TYPE_CHECKING:
    import pandas


class _Table:
    """The attribute `metrics_dataframe`: made of the reports when it is first asked for, as importing pandas takes longer than many a run."""

    def __get__(self, result: Any, kind: Any) -> Any:
        if result is None:
            return None       # the default of the dataclass's field
        table = result.__dict__.get("metrics_dataframe")
        if isinstance(table, list):
            table = result.__dict__["metrics_dataframe"] = frame(table)
        return table

    def __set__(self, result: Any, table: Any) -> None:
        result.__dict__["metrics_dataframe"] = table


@dataclass
class Result:
    """The outcome of `fit`.

    Attributes
    ----------
    metrics : dict
        The last report.
    checkpoint : Checkpoint
        The newest checkpoint.
    error : Exception
        None; `fit` raises.
    path : str
        The folder of the run.
    metrics_dataframe : pandas.DataFrame
        All reports, a row each.
    best_checkpoints : list of (Checkpoint, dict)
        The checkpoints that CheckpointConfig asks to keep, each with its report, in their order; with a score, the best last.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    error: Exception | None
    path: str
    metrics_dataframe: pandas.DataFrame | None = cast(Any, _Table())
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None
    _storage_filesystem: Any = None
    return_value: Any = None
    _config: Any = field(default=None, init=False, repr=False, compare=False)

    @property
    def config(self) -> dict[str, Any] | None:
        """What the run was configured with: ``{"train_loop_config": ...}`` for a trainer."""
        reported = (self.metrics or {}).get("config")
        if reported is None and self._config is not None:
            return {"train_loop_config": self._config}
        return reported

    @property
    def filesystem(self) -> Any:
        """Where `path` is, as pyarrow names it."""
        if self._storage_filesystem is not None:
            return self._storage_filesystem
        import pyarrow.fs

        return pyarrow.fs.LocalFileSystem()

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """The kept checkpoint with the largest or smallest `metric`.

        Parameters
        ----------
        metric : str
            A metric of the reports; ``a/b`` is b within a.
        mode : {"max", "min"}
            Which is best.
        """
        if mode not in ("max", "min"):
            raise ValueError(f'Unsupported mode: {mode!r}. Please choose from ["min", "max"]!')
        if not self.best_checkpoints:
            raise RuntimeError("No checkpoint exists in the trial directory!")
        scored = [(value, checkpoint) for checkpoint, metrics in self.best_checkpoints if (value := dig(metrics, metric)) is not None]
        if not scored:
            known = sorted({key for _, metrics in self.best_checkpoints for key in metrics})
            raise RuntimeError(f"Invalid metric name {metric!r}! You may choose from the following metrics: {', '.join(known)}.")
        numbers = [pair for pair in scored if pair[0] == pair[0]]        # NaN is larger and smaller than nothing
        return (max if mode == "max" else min)(numbers or scored, key=lambda pair: pair[0])[1]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Read a run back from its folder.

        Its `best_checkpoints` are those that the run's own Result had; of a trial of a search, all that are there, in the order of their reports.

        Parameters
        ----------
        path : str
            ``Result.path``, or that of the run; a path or a URI.
        storage_filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
            Where `path` is a path.
        """
        from raygo.train._kept import best_of, kept_checkpoints, noted_config

        files, folder = resolve(path, storage_filesystem)
        if not files.is_folder(folder):
            raise RuntimeError(f"Experiment folder {folder} doesn't exist!")
        noted = None
        if not files.is_file(join(folder, RESULT_FILE_JSON)):
            noted = read_note(files, folder)
            if noted is not None:
                folder = join(folder, noted["trial_dir_name"])
        parent, _, trial = folder.rpartition("/")
        noted = noted or read_note(files, parent)
        if noted is None and not files.is_file(join(folder, RESULT_FILE_JSON)):
            raise RuntimeError(f"Failed to restore the Result object: {folder} has no {RESULT_FILE_JSON} and no {CHECKPOINT_MANAGER_SNAPSHOT_FILENAME} "
                               "of a run. Give the folder of a run or of a trial, as Result.path does")
        root, _, experiment = parent.rpartition("/")
        storage = StorageContext(root or "/", experiment, storage_filesystem=None if files.local else files.arrow(), trial_dir_name=trial, read_only=True)
        if noted is not None and noted["trial_dir_name"] != trial:
            noted = None
        reports = with_noted(read_history(storage), noted)
        kept = kept_checkpoints(storage, noted, reports)
        result = cls(reports[-1] if reports else {}, kept[-1][0] if kept else None, None, folder, cast(Any, reports), best_of(kept, noted_config(noted)),
                     None if files.local else files.arrow())
        if noted is not None:
            with contextlib.suppress(FileNotFoundError):
                result._config = json.loads(files.read(join(folder, EXPR_PARAM_FILE))).get("train_loop_config")
        return result

    def __repr__(self) -> str:
        from raygo.tune.result import AUTO_RESULT_KEYS

        shown = {key: value for key, value in (self.metrics or {}).items() if key not in AUTO_RESULT_KEYS}
        failed = f"error={type(self.error).__name__}, " if self.error is not None else ""
        return f"Result({failed}metrics={shown}, path={self.path!r}, checkpoint={self.checkpoint!r})"


def read_note(files: Files, folder: str) -> dict[str, Any] | None:
    """What a run has noted of itself; None where there is no run of raygo.train."""
    try:
        noted: dict[str, Any] = json.loads(files.read(join(folder, CHECKPOINT_MANAGER_SNAPSHOT_FILENAME)))
    except FileNotFoundError:
        return None
    return noted if "trial_dir_name" in noted else None        # else Ray's own, which has a file of that name


def read_history(storage: StorageContext) -> list[dict[str, Any]]:
    """The reports in a trial's file.  A line that a killed driver has left unfinished is left out."""
    try:
        lines = storage.files.read(join(storage.trial_fs_path, RESULT_FILE_JSON)).decode(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    reports = []
    for line in lines:
        try:
            reports.append(dict(json.loads(line)))
        except ValueError:
            continue
    return reports


def with_noted(reports: list[dict[str, Any]], noted: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The reports of a trial: those of its file, and those with a checkpoint, which are noted before they are sure to be in the file."""
    reports = list(reports)
    positions = {report.get(CHECKPOINT_DIR_NAME): position for position, report in enumerate(reports)}
    rounds = {report.get("training_iteration"): position for position, report in enumerate(reports) if not report.get(CHECKPOINT_DIR_NAME)}
    for entry in (noted or {}).get("checkpoints", ()):
        if (metrics := entry.get("metrics")) is None or (name := entry.get("name")) is None:
            continue
        if (position := positions.get(name, rounds.get(metrics.get("training_iteration")))) is not None:
            reports[position] = metrics        # may have what a validation has added, or a checkpoint that came after the report
        else:
            reports.append(metrics)
    return reports


def by_checkpoint(reports: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The reports that have a checkpoint, by its name; a name that is used again has its place by its last report."""
    named: dict[str, dict[str, Any]] = {}
    for report in reports:
        if name := report.get(CHECKPOINT_DIR_NAME):
            named.pop(name, None)
            named[name] = report
    return named


def dig(metrics: dict[str, Any], name: str) -> Any:
    """A metric by its name, ``a/b`` for b within a; None when it is not there."""
    if name in metrics:
        return metrics[name]
    parts = name.split("/")
    for split in range(1, len(parts)):       # keys may have slashes of their own
        inner = metrics.get("/".join(parts[:split]))
        if isinstance(inner, dict) and (found := dig(inner, "/".join(parts[split:]))) is not None:
            return found
    return None


def frame(reports: list[dict[str, Any]]) -> pandas.DataFrame | None:
    """The reports as a table; None where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        return None
    return pandas.DataFrame(reports)
