"""TensorBoard's event files."""
from __future__ import annotations

import functools
import math
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from raygo.tune.logger.logger import LoggerCallback, flatten
from raygo.tune.result import TIME_TOTAL_S, TIMESTEPS_TOTAL, TRAINING_ITERATION

if TYPE_CHECKING:
    from raygo.tune.experiment import Trial

__all__ = ["TBXLoggerCallback"]


class TBXLoggerCallback(LoggerCallback):
    """Writes events.out.tfevents... into each trial's folder: numbers as scalars, the config as hparams."""

    VALID_HPARAMS = (str, bool, int, float, list, type(None))
    VALID_NP_HPARAMS = ("bool", "float32", "float64", "int32", "int64")

    _SKIPPED = ("config", "pid", "timestamp", TIME_TOTAL_S, TRAINING_ITERATION)

    def __init__(self) -> None:
        self._writers: dict[str, EventFile] = {}

    def log_trial_start(self, trial: Trial) -> None:
        if (old := self._writers.pop(trial.trial_id, None)) is not None:
            old.close()
        self._writers[trial.trial_id] = EventFile(trial.local_path)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
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


    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        while self._writers:
            self._writers.popitem()[1].close()


class EventFile:
    """One file of TensorBoard's events: records of a length, its checksum, an Event message, its checksum.

    The few messages that are needed are encoded here.  Importing TensorBoard's takes the driver a second, and the writers of tensorboard and
    tensorboardX import boto3 and torch as well; the tests read the files with TensorBoard.

    The numbers in the code are those of the fields in TensorBoard's event.proto, summary.proto and plugin_data.proto.
    """

    def __init__(self, folder: str) -> None:
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{_host()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = open(os.path.join(folder, name), "ab", buffering=0)
        self._head = _record(_double(1, now) + _bytes(3, b"brain.Event:2"))          # goes with the first event

    def add_scalars(self, scalars: dict[str, float], step: int) -> None:
        """One event with all of them."""
        if scalars:
            values = [_bytes(1, _tag(tag) + _float(2, value)) for tag, value in scalars.items()]
            self._write(_double(1, time.time()) + _int(2, int(step)) + _bytes(5, b"".join(values)))

    def add_hparams(self, params: dict[str, Any]) -> None:
        """The config, for TensorBoard's page of hyperparameters."""
        now = time.time()
        entries = []
        for key, value in params.items():
            number = _number(value)
            if isinstance(value, bool):
                shown = _int(4, int(value))
            elif number is not None:
                shown = _double(2, number)
            else:
                shown = _bytes(3, str(value).encode(errors="replace"))
            entries.append(_bytes(1, _bytes(1, str(key).encode(errors="replace")) + _bytes(2, shown)))
        start = b"".join(entries) + _double(5, now)
        metadata = _bytes(1, _bytes(1, b"hparams") + _bytes(2, _bytes(3, start)))
        self._write(_double(1, now) + _bytes(5, _bytes(1, _bytes(1, b"_hparams_/session_start_info") + _bytes(9, metadata))))

    def close(self) -> None:
        if self._head:
            self._file.write(self._head)
        self._file.close()

    def _write(self, event: bytes) -> None:
        head, self._head = self._head, b""
        self._file.write(head + _record(event))


_SHORT = [bytes((value,)) for value in range(128)]


def _varint(value: int) -> bytes:
    if 0 <= value < 128:
        return _SHORT[value]
    value &= (1 << 64) - 1           # negative ones take ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(field: int, value: int) -> bytes:
    return _SHORT[field << 3] + _varint(value)


def _double(field: int, value: float) -> bytes:
    return struct.pack("<Bd", field << 3 | 1, value)


def _float(field: int, value: float) -> bytes:
    try:
        return struct.pack("<Bf", field << 3 | 5, value)
    except OverflowError:            # beyond what 32 bits hold
        return struct.pack("<Bf", field << 3 | 5, math.copysign(math.inf, value))


def _bytes(field: int, value: bytes) -> bytes:
    return _SHORT[field << 3 | 2] + _varint(len(value)) + value


@functools.lru_cache(maxsize=4096)
def _tag(name: str) -> bytes:
    return _bytes(1, name.encode(errors="replace"))


def _record(data: bytes) -> bytes:
    return _length(len(data)) + data + _masked_crc(data)


@functools.lru_cache(maxsize=4096)
def _length(count: int) -> bytes:
    head = struct.pack("<Q", count)
    return head + _masked_crc(head)


@functools.lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()


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
