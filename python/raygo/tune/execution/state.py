"""The experiment on disk, so that it is found again after a crash at any moment.

A *log* gets one record per change, before anyone else hears of it; so a driver that is killed loses at most the report it was taking in.
A *snapshot* holds all trials, written beside the log and moved into place; reading starts from the snapshot and goes on in the log where that
was written. Snapshots are made when the log has grown by more than the snapshot is long, so that writing stays in proportion to what happens.

    experiment_state-<session>.json     the snapshot: for people, and pickled for us
    experiment_log-<session>.bin        records: length, checksum, pickle; one that is torn ends the log
"""
from __future__ import annotations

import base64
import glob
import json
import os
import pickle
import struct
import time
import zlib
from typing import Any

from raygo.train._settings import PlacementGroupFactory
from raygo.tune.error import TuneError
from raygo.tune.experiment.trial import MetricTrace, Trial
from raygo.tune.result import CHECKPOINT_DIR_NAME
from raygo.tune.utils.pickling import dumps

__all__ = ["ExperimentState", "load_trials", "session_files"]

_HEAD = struct.Struct("<II")
# A snapshot is not worth its while below this.
_SMALLEST_LOG = 4 << 20
# Of raygo, with nothing of a user's script in them.
_KNOWN = (MetricTrace, PlacementGroupFactory)
_FIELDS = ("trainable_name", "trial_id", "evaluated_params", "experiment_tag", "relative_logdir", "custom_trial_name", "stopping_criterion",
           "status", "start_time", "num_failures", "error_text", "node_ip", "checkpoints_made", "resources_changed")


class ExperimentState:
    """Writes log and snapshots.

    Parameters
    ----------
    folder : str
        The experiment's folder on this machine.
    trials : list of Trial
        All trials; the list grows.
    """

    def __init__(self, folder: str, trials: list[Trial]) -> None:
        self.session = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}.{os.getpid()}_{time.monotonic_ns() % 10**6:06d}"
        self.folder = folder
        self.trials = trials
        self._older = session_files(folder)
        self._log_name = f"experiment_log-{self.session}.bin"
        self._log = open(os.path.join(folder, self._log_name), "ab", buffering=0)
        self._logged = self._at_snapshot = 0
        self._snapshot_size = 0
        self._began = time.time()
        self._configs: dict[str, int] = {}       # id of the config that the log has
        self._kept: dict[str, tuple[int, Any]] = {}      # of the kept checkpoints that the log has: how many, and the newest

    def begin(self) -> None:
        """The first snapshot; what earlier sessions wrote is then in it."""
        self.snapshot()
        for path in self._older:
            os.unlink(path)

    def added(self, trial: Trial) -> None:
        """A new trial."""
        self.changed(trial, whole=True)

    def changed(self, trial: Trial, result: dict[str, Any] | None = None, whole: bool = False) -> None:
        """A trial's state, and what it reported."""
        record: dict[str, Any] = {"id": trial.trial_id}
        if whole or self._configs.get(trial.trial_id) != id(trial.config):
            self._configs[trial.trial_id] = id(trial.config)
            record["whole"] = _fields(trial)
            record["config"] = trial.config
            record["resources"] = trial.placement_group_factory
        else:
            record["status"] = trial.status
            record["dir"] = trial.relative_logdir
            record["failures"] = trial.num_failures
            record["error"] = trial.error_text
        if result is not None:
            record["result"] = {key: value for key, value in result.items() if key != "config"}
        elif trial.last_result.get("done"):
            record["done"] = True
        self._note_kept(trial, record)
        record["made"] = trial.checkpoints_made
        if result is None and trial.checkpoints:
            record["newest"] = _without_config(trial.checkpoints[-1][1])
        if trial.is_finished():
            self._configs.pop(trial.trial_id, None)
            self._kept.pop(trial.trial_id, None)
        self._append(record)

    def _note_kept(self, trial: Trial, record: dict[str, Any]) -> None:
        """All kept checkpoints, or one that came to them: a trial that keeps all it makes does not list them all with each report."""
        count, newest = self._kept.get(trial.trial_id, (-1, None))
        now = len(trial.checkpoints), trial.checkpoint
        if count == now[0] and newest is now[1]:
            return
        if 0 < count == now[0] - 1 and trial.checkpoints[-2][0] is newest:
            record["one_more"] = _reference(trial, now[1])
        else:
            record["kept"] = [_reference(trial, checkpoint) for checkpoint, _ in trial.checkpoints]
        self._kept[trial.trial_id] = now

    def _append(self, record: dict[str, Any]) -> None:
        data = dumps(record, *_KNOWN)
        self._write(_HEAD.pack(len(data), zlib.crc32(data)) + data)
        if self._logged - self._at_snapshot > max(_SMALLEST_LOG, self._snapshot_size):
            self.snapshot()

    def _write(self, record: bytes) -> None:
        """A record, whole or not at all: what came after a torn one would not be read."""
        written = 0
        try:
            while written < len(record):         # once, except where the disk is nearly full
                written += self._log.write(record[written:]) or 0
        except OSError as error:
            os.ftruncate(self._log.fileno(), self._logged)
            raise TuneError(f"the search cannot be written down any more, so it ends: {self._log.name}: {error.strerror}. Make room there, then "
                            f"Tuner.restore({self.folder!r}, trainable=...) goes on.") from error
        self._logged += len(record)

    def snapshot(self) -> None:
        """All trials, in one file."""
        states = [(_fields(trial), trial.config, trial.placement_group_factory, _without_config(trial.last_result), trial.metric_analysis,
                   [(_reference(trial, c), _without_config(m)) for c, m in trial.checkpoints]) for trial in self.trials]
        shown = [{"trial_id": t.trial_id, "trial": str(t), "status": t.status, "folder": t.relative_logdir, "failures": t.num_failures} for t in self.trials]
        body = {"session": self.session, "started": self._began, "saved": time.time(), "log": self._log_name, "log_offset": self._logged,
                "trials": shown, "pickled": base64.b64encode(zlib.compress(dumps(states, *_KNOWN), 1)).decode()}
        path = os.path.join(self.folder, f"experiment_state-{self.session}.json")
        with open(path + ".tmp", "w") as file:
            file.write(json.dumps(body, default=str))
        os.replace(path + ".tmp", path)
        self._at_snapshot = self._logged
        self._snapshot_size = os.path.getsize(path)

    def close(self) -> None:
        """A last snapshot."""
        self.snapshot()
        self._log.close()


def session_files(folder: str) -> list[str]:
    """What sessions have written."""
    place = glob.escape(folder)
    return glob.glob(os.path.join(place, "experiment_state-*.json")) + glob.glob(os.path.join(place, "experiment_log-*.bin"))


def load_trials(folder: str, storage: Any, settings: dict[str, Any]) -> list[Trial]:
    """The trials of an experiment, as they were last known.

    Parameters
    ----------
    folder : str
        The experiment's folder on this machine.
    storage : ExperimentStorage
        Where it is stored now, which may not be where it was.
    settings : dict
        What all its trials are made with.
    """
    snapshots = glob.glob(os.path.join(glob.escape(folder), "experiment_state-*.json"))
    if not snapshots:
        raise FileNotFoundError(f"{folder} has no experiment_state-*.json: it is not the folder of an experiment of raygo.tune")
    with open(max(snapshots, key=os.path.getmtime)) as file:
        body = json.load(file)
    trials: dict[str, Trial] = {}
    for fields, config, resources, last_result, traces, kept in pickle.loads(zlib.decompress(base64.b64decode(body["pickled"]))):
        trial = _trial(fields, config, resources, storage, settings)
        trial.last_result = {**last_result, "config": config} if last_result else {}
        trial.metric_analysis = traces
        trial.checkpoints = [(_found(trial, storage, reference), {**metrics, "config": config}) for reference, metrics in kept]
        trials[trial.trial_id] = trial
    for record in _records(os.path.join(folder, body["log"]), body["log_offset"]):
        _apply(record, trials, storage, settings)
    return list(trials.values())


def _records(path: str, offset: int) -> Any:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:          # of a storage to which only snapshots are copied
        return
    at = 0
    while at + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size:at + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != check:
            return
        at += _HEAD.size + length
        yield pickle.loads(body)


def _apply(record: dict[str, Any], trials: dict[str, Trial], storage: Any, settings: dict[str, Any]) -> None:
    trial = trials.get(record["id"])
    if "whole" in record:
        fresh = _trial(record["whole"], record["config"], record["resources"], storage, settings)
        if trial is not None:
            fresh.last_result, fresh.metric_analysis, fresh.checkpoints = trial.last_result, trial.metric_analysis, trial.checkpoints
        trial = trials[record["id"]] = fresh
    elif trial is not None:
        trial.status, trial.relative_logdir = record["status"], record["dir"]
        trial.num_failures, trial.error_text = record["failures"], record["error"]
    if trial is None:
        return
    result = record.get("result")
    if result is not None:
        trial.update_last_result({**result, "config": trial.config})
    elif record.get("done") and trial.last_result:
        trial.last_result["done"] = True
    trial.checkpoints_made = record["made"]
    known: dict[Any, Any] = {}
    if "kept" in record:
        known = {c: (c, m) for c, m in trial.checkpoints}
        trial.checkpoints = []
    for reference in record["kept"] if "kept" in record else [record["one_more"]] if "one_more" in record else []:
        checkpoint = _found(trial, storage, reference)
        if result is not None and result.get(CHECKPOINT_DIR_NAME) == name_of(checkpoint):
            trial.checkpoints.append((checkpoint, {**result, "config": trial.config}))
        else:
            trial.checkpoints.append(known.get(checkpoint) or (checkpoint, {**(record.get("newest") or {}), "config": trial.config}))


def _trial(fields: dict[str, Any], config: dict[str, Any], resources: Any, storage: Any, settings: dict[str, Any]) -> Trial:
    trial = Trial(fields["trainable_name"], config=config, trial_id=fields["trial_id"], storage=storage, placement_group_factory=resources, **settings)
    for key, value in fields.items():
        setattr(trial, key, value)
    return trial


def _fields(trial: Trial) -> dict[str, Any]:
    return {key: getattr(trial, key) for key in _FIELDS}


def _reference(trial: Trial, checkpoint: Any) -> Any:
    """How a checkpoint is noted: by its name, so that the experiment's folder can be moved; itself, where it is not in the trial's folder."""
    name = name_of(checkpoint)
    return name if checkpoint == trial.storage.checkpoint(str(trial.relative_logdir), name) else checkpoint


def _found(trial: Trial, storage: Any, reference: Any) -> Any:
    return storage.checkpoint(trial.relative_logdir, reference) if isinstance(reference, str) else reference


def name_of(checkpoint: Any) -> str:
    """The folder's name of a checkpoint."""
    return str(checkpoint.path).rstrip("/").rsplit("/", 1)[-1]


def _without_config(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if key != "config"}
