"""What a training worker and the driver tell each other.

A worker leaves its messages in a mailbox, from which the driver takes them.  Until it has, they are also in a journal, a file of the
session on the worker's machine: what a worker reported before it was killed is read there.
"""
from __future__ import annotations

import logging
import os
import pickle
import queue
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

from raygo.train._checkpoint import Checkpoint

log = logging.getLogger("raygo.train")
# Messages that may wait for the driver; a loop that reports faster than it is read is slowed down to it.
_MAILBOX = 1024
_LENGTH = struct.Struct("<I")


@dataclass
class Place:
    """A worker's place in the group."""

    world_rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    resources: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, Any] = field(default_factory=dict)
    validates: bool = False                     # whether the trainer has a ValidationConfig


@dataclass
class Report:
    """What a rank says at one call of `report`."""

    index: int
    metrics: dict[str, Any]
    brings: bool = False                        # a Brought follows
    validation: Any = False
    profile: tuple[float, float, float] = (0.0, 0.0, 0.0)       # since the report before: seconds, of them in data, in communication


@dataclass
class Brought:
    """A rank's checkpoint of a report is on the storage."""

    index: int
    files: list[str] | None = None              # copied to the storage
    in_place: Checkpoint | None = None          # where it stays
    failed: bool = False                        # it is not, and will not be
    name: str | None = None                     # of the checkpoint's folder, where the loop says so

    def __post_init__(self) -> None:
        if self.in_place is not None and self.in_place.path.endswith("/"):       # its name is what comes after the last slash
            self.in_place = Checkpoint._on(self.in_place._files, self.in_place.path.rstrip("/"))


@dataclass
class Ask:
    """A rank wants something of the driver, and waits for the answer."""

    number: int
    what: str
    value: Any = None
    heard: float = 0.0                          # when the driver heard it, by its clock


def dump(message: Any) -> bytes:
    """A message as bytes; what it holds may change afterwards."""
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception:        # of the user's own script, or a closure
        from raygo import cloudpickle

        return bytes(cloudpickle.dumps(message))


class Mailbox:
    """Where a worker leaves messages.

    Parameters
    ----------
    journal : str, optional
        The file that keeps them until the driver has them.
    """

    def __init__(self, journal: str | None = None) -> None:
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MAILBOX)
        self._lock = threading.Lock()
        self._journal = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600) if journal else None
        self._put = self._taken = 0         # messages so far

    def put(self, message: Any) -> None:
        """Leave a message; None: there will be no more."""
        data = None if message is None else dump(message)
        with self._lock:
            self._put += 1
            if data is not None and self._journal is not None:
                os.write(self._journal, _LENGTH.pack(len(data)) + data)
        self._waiting.put(data)

    def take(self) -> list[bytes | None]:
        """All messages that wait, at least one; that the driver asks again means that it has the ones before."""
        with self._lock:
            if self._put == self._taken > 0 and self._journal is not None:
                os.ftruncate(self._journal, 0)
        taken = [self._waiting.get()]
        while len(taken) < _MAILBOX:
            try:
                taken.append(self._waiting.get_nowait())
            except queue.Empty:
                break
        self._taken += len(taken)
        return taken


def read_journal(path: str) -> list[Any]:
    """The messages in a journal; a last one that is not whole is left out."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    messages: list[Any] = []
    at = 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            break
        try:
            messages.append(pickle.loads(data[at:at + length]))
        except Exception as error:
            # It is about to be known why the run failed; a report of a class that the driver lacks must not hide that.
            log.warning("a report in the journal %s cannot be read in the driver: %s: %s", path, type(error).__name__, error)
        at += length
    return messages
