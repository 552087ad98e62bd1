"""The checkpoints of a run: which are kept, and what is noted of the run so that it can go on after the driver was killed.

``checkpoint_manager_snapshot.json`` in the run's folder names the trial's folder and the kept checkpoints, the last ones with their
reports, which the trial's result.json may not have yet.  It is written whole, after a checkpoint is on the storage and before any is
deleted: at every moment it names only what is there.  Where all are kept it names the last ones; the others are those that reports name.
"""
from __future__ import annotations

import json
from collections.abc import Collection
from numbers import Real
from typing import Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._files import join, resolve
from raygo.train._result import by_checkpoint, dig
from raygo.train._settings import CheckpointConfig
from raygo.train._storage import StorageContext, checkpoint_name
from raygo.train.constants import CHECKPOINT_DIR_NAME, CHECKPOINT_MANAGER_SNAPSHOT_FILENAME

# How many are noted of a run that keeps all.  On an object store, which result.json reaches in the background, with their reports: it is not
# expected to be further behind than that.
_NOTED = 100

# Of the CheckpointConfig: what says which checkpoints a Result shows, and in which order.
_CONFIG = ("num_to_keep", "checkpoint_score_attribute", "checkpoint_score_order")

RUNNING, FINISHED, ERRORED, INTERRUPTED = "RUNNING", "FINISHED", "ERRORED", "INTERRUPTED"


class KeptCheckpoints:
    """The checkpoints on the storage, pruned by the CheckpointConfig."""

    def __init__(self, config: CheckpointConfig, storage: StorageContext, noted: bool = True) -> None:
        self.config = config
        self.noted = noted          # else somebody else does it
        self.storage = storage
        self.kept: list[tuple[Checkpoint, dict[str, Any]]] = []
        self._paths: set[str] = set()
        self._elsewhere: set[str] = set()   # paths of those that are not in the trial's folder
        self.made = 0
        self.amended: set[str] = set()      # paths of checkpoints whose reports have more in them than was written: of validations
        self.status = RUNNING

    @property
    def newest(self) -> Checkpoint | None:
        return self.kept[-1][0] if self.kept else None

    def next_name(self) -> str:
        name = checkpoint_name(self.made)
        self.made += 1
        return name

    def add(self, checkpoint: Checkpoint, metrics: dict[str, Any], in_use: Collection[str] = ()) -> None:
        if checkpoint.path in self._paths:
            # A loop may use one name again and again; there is one checkpoint of it.
            self.kept = [pair for pair in self.kept if pair[0] != checkpoint]
        self._append(checkpoint, metrics)
        self.prune(in_use)

    def prune(self, in_use: Collection[str] = ()) -> None:
        """Drop those that are too many, and note the state; checkpoints with these paths are not dropped yet."""
        most = self.config.num_to_keep
        gone = []
        while most is not None and len(self.kept) > most and (worst := worst_of(self.kept, self.config, most, in_use)) is not None:
            gone.append(self.kept.pop(worst)[0])
        self.save()
        for each in gone:
            self._delete(each)

    def _append(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self.kept.append((checkpoint, metrics))
        self._paths.add(checkpoint.path)
        if not self._is_own(checkpoint):
            self._elsewhere.add(checkpoint.path)

    def _delete(self, checkpoint: Checkpoint) -> None:
        name = checkpoint.path.rpartition("/")[2]
        if self._is_own(checkpoint):
            self.storage.delete_checkpoint(name)
        else:
            checkpoint._files.delete(checkpoint.path)

    def _is_own(self, checkpoint: Checkpoint) -> bool:
        return checkpoint == self.storage.checkpoint(checkpoint.path.rpartition("/")[2])

    def save(self) -> None:
        """Note the state of the run."""
        if not self.noted:
            return
        from raygo.tune.logger.logger import plain

        storage = self.storage
        with_report = len(self.kept) - (1 if storage.files.local else _NOTED)
        # Where all are kept, the note would grow with each of them, and is written with each: those that the reports tell of are left out.
        first = max(0, len(self.kept) - _NOTED) if self.config.num_to_keep is None else 0
        special = self.amended | self._elsewhere
        shown = [*((c, metrics, c.path in self.amended) for c, metrics in (self.kept[:first] if special else []) if c.path in special),
                 *((c, metrics, position >= with_report or c.path in self.amended) for position, (c, metrics) in enumerate(self.kept[first:], first))]
        entries = [{**({"name": c.path.rpartition("/")[2]} if c.path not in self._elsewhere else {"path": c.path, "on": c._files.name}),
                    **({"metrics": metrics} if whole else {})} for c, metrics, whole in shown]
        noted = {"version": 1, "status": self.status, "trial_dir_name": storage.trial_dir_name, "trial_id": storage.trial_id,
                 "trial_name": storage.trial_name, "made": self.made, "checkpoints": entries, "and_all_reported": first > 0,
                 "config": {key: getattr(self.config, key) for key in _CONFIG}}
        path = join(storage.experiment_fs_path, CHECKPOINT_MANAGER_SNAPSHOT_FILENAME)
        storage.files.write(path, json.dumps(noted, default=plain, skipkeys=True).encode())

    def load(self, noted: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
        """Take up what an earlier run has left; the names of checkpoints of which nothing is noted, as it was killed before it could."""
        there = set(self.storage.whole_folders())
        reports = by_checkpoint(history)
        if noted.get("and_all_reported"):
            named = {entry.get("name") for entry in noted["checkpoints"]}
            for name in [name for name in reports if name in there and name not in named]:
                self._append(self.storage.checkpoint(name), reports[name])
        for entry in noted["checkpoints"]:
            if (name := entry.get("name")) is None:
                if entry["on"] == "local" or entry["on"] == self.storage.files.name:
                    self._append(Checkpoint._on(resolve(entry["path"])[0] if entry["on"] == "local" else self.storage.files, entry["path"]),
                                 entry.get("metrics") or reports.get(entry["path"].rpartition("/")[2], {}))
            elif name in there:
                self._append(self.storage.checkpoint(name), entry.get("metrics") or reports.get(name, {}))
        known = {checkpoint.path.rpartition("/")[2] for checkpoint, _ in self.kept}
        # Those that were reported after the last one that is noted: it was killed between the two.
        last = max((i for i, metrics in enumerate(history) if metrics.get(CHECKPOINT_DIR_NAME) in known), default=-1)
        for metrics in history[last + 1:]:
            if (told := metrics.get(CHECKPOINT_DIR_NAME)) in there:
                self._append(self.storage.checkpoint(told), metrics)
                known.add(told)
        numbered = sorted(name for name in there if name.startswith("checkpoint_"))
        self.made = max(noted["made"], next_number(numbered))
        newest = max(known & set(numbered), default="")
        return [name for name in numbered if name not in known and name not in reports and name > newest]

    def names(self) -> set[str]:
        """The folders of the kept ones that are in the trial's."""
        return {checkpoint.path.rpartition("/")[2] for checkpoint, _ in self.kept if self._is_own(checkpoint)}


def kept_checkpoints(storage: StorageContext, noted: dict[str, Any] | None, reports: list[dict[str, Any]]) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """The checkpoints of a run that is read back, in their order; nothing is noted of a trial of a search."""
    if noted is None:
        whole = set(storage.whole_folders())
        return [(storage.checkpoint(name), report) for name, report in by_checkpoint(reports).items() if name in whole]
    checkpoints = KeptCheckpoints(CheckpointConfig(), storage, noted=False)
    checkpoints.load(noted, reports)
    return checkpoints.kept


def noted_config(noted: dict[str, Any] | None) -> CheckpointConfig | None:
    """By what a run kept its checkpoints, as far as that is noted."""
    return CheckpointConfig(**noted["config"]) if noted is not None and "config" in noted else None


def next_number(names: list[str]) -> int:
    """The number of the checkpoint after these."""
    return max((int(name.rpartition("_")[2]) + 1 for name in names if name.rpartition("_")[2].isdigit()), default=0)


def best_of(kept: list[tuple[Checkpoint, dict[str, Any]]], config: CheckpointConfig | None) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """What a Result shows of the kept ones: those that the config asks for, the best last if they have a score.

    The newest, which is kept beside them, is the Result's `checkpoint`.
    """
    if config is None:
        return list(kept)
    shown = kept if config.checkpoint_score_attribute is None else [kept[i] for i in reversed(ranked(kept, config))]
    return shown[-config.num_to_keep:] if config.num_to_keep is not None else list(shown)


def worst_of(kept: list[tuple[Checkpoint, dict[str, Any]]], config: CheckpointConfig, most: int, in_use: Collection[str] = ()) -> int | None:
    """Which of too many checkpoints to drop: never the newest, one of the best `most`, or one with a path `in_use`."""
    order = range(len(kept))[::-1] if config.checkpoint_score_attribute is None else ranked(kept, config)
    return next((i for i in reversed(order[most:]) if i != len(kept) - 1 and kept[i][0].path not in in_use), None)


def ranked(kept: list[tuple[Checkpoint, dict[str, Any]]], config: CheckpointConfig) -> list[int]:
    """The checkpoints' positions, the best first; of those that are as good as each other, the newest."""
    sign = 1 if config.checkpoint_score_order == "max" else -1
    scores: list[tuple[bool, float, int]] = []
    for position, (_, metrics) in enumerate(kept):
        value = dig(metrics, config.checkpoint_score_attribute or "")
        # No score, or NaN, is worse than any score.  NumPy's numbers are Real too.
        good = isinstance(value, Real) and value == value
        scores.append((good, sign * float(value) if good else 0.0, position))
    return sorted(range(len(scores)), key=lambda i: scores[i], reverse=True)
