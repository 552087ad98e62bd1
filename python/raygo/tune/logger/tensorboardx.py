"""TensorBoard's event files."""
from __future__ import annotations

import importlib.util
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from raygo.tune.logger.logger import LoggerCallback, flatten, log
from raygo.tune.result import TIME_TOTAL_S, TIMESTEPS_TOTAL, TRAINING_ITERATION

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["TBXLoggerCallback"]


class TBXLoggerCallback(LoggerCallback):
    """Writes events.out.tfevents... into each trial's folder: numbers as scalars, the config as hparams.

    Needs the package tensorboard; without it nothing is written, and a log line says so once.
    """

    VALID_HPARAMS = (str, bool, int, float, list, type(None))
    VALID_NP_HPARAMS = ("bool", "float32", "float64", "int32", "int64")

    _SKIPPED = ("config", "pid", "timestamp", TIME_TOTAL_S, TRAINING_ITERATION)

    def __init__(self) -> None:
        self._writers: dict[str, EventFile] = {}
        self._available = importlib.util.find_spec("tensorboard") is not None
        if not self._available:
            log.info("events for TensorBoard are not written: pip install tensorboard")

    def log_trial_start(self, trial: Trial) -> None:
        if not self._available:
            return
        if (old := self._writers.pop(trial.trial_id, None)) is not None:
            old.close()
        self._writers[trial.trial_id] = EventFile(trial.local_path)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if not self._available:
            return
        if trial.trial_id not in self._writers:
            self.log_trial_start(trial)
        step = result.get(TIMESTEPS_TOTAL) or result.get(TRAINING_ITERATION, 0)
        scalars: dict[str, float] = {}
        for key, value in flatten({k: v for k, v in result.items() if k not in self._SKIPPED}).items():
            number = _number(value)
            if number is not None:
                scalars[f"ray/tune/{key}"] = number
        self._writers[trial.trial_id].add_scalars(scalars, step)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        writer = self._writers.pop(trial.trial_id, None)
        if writer is not None:
            try:
                if trial.evaluated_params:
                    writer.add_hparams(flatten(trial.config))
            finally:
                writer.close()


class EventFile:
    """One file of TensorBoard's events.

    The messages are TensorBoard's own.  The file's framing (length, checksum, bytes, checksum) is written here: the writers of tensorboard
    and tensorboardX import boto3 and torch first, which takes the driver one to four seconds.
    """

    def __init__(self, folder: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._event, self._summary = Event, Summary
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = open(os.path.join(folder, name), "ab", buffering=0)
        self._write(Event(wall_time=now, file_version="brain.Event:2"))

    def add_scalars(self, scalars: dict[str, float], step: int) -> None:
        """One event with all of them."""
        if scalars:
            values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            self._write(self._event(wall_time=time.time(), step=int(step), summary=self._summary(value=values)))

    def add_hparams(self, params: dict[str, Any]) -> None:
        """The config, for TensorBoard's page of hyperparameters."""
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

        start = SessionStartInfo(start_time_secs=time.time())
        for key, value in params.items():
            number = _number(value)
            if isinstance(value, bool):
                start.hparams[key].bool_value = value
            elif number is not None:
                start.hparams[key].number_value = number
            else:
                start.hparams[key].string_value = str(value)
        shown = self._summary.Value(tag="_hparams_/session_start_info")
        shown.metadata.plugin_data.plugin_name = "hparams"
        shown.metadata.plugin_data.content = HParamsPluginData(session_start_info=start, version=0).SerializeToString()
        self._write(self._event(wall_time=time.time(), summary=self._summary(value=[shown])))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        head = struct.pack("<Q", len(data))
        self._file.write(head + _masked_crc(head) + data + _masked_crc(data))


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)):
        return float(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):      # a NumPy or torch number
        number = value.item()
        return float(number) if isinstance(number, (bool, int, float)) else None
    return None


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    """CRC-32C, turned as record files want it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
