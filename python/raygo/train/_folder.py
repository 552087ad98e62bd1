"""The folder of a run: found again by its name, and kept for one driver."""
from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
import uuid
from typing import Any

from raygo.train._result import read_note
from raygo.train._settings import RunConfig
from raygo.train._storage import StorageContext


def find_run(config: RunConfig, trainer: str) -> tuple[StorageContext, dict[str, Any] | None]:
    """Where a run is stored, and what is noted of it if it is there already: a name that was given before means the same run."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    storage = StorageContext(config.storage_path, config.name or f"{trainer}_{stamp}_{uuid.uuid4().hex[:4]}", storage_filesystem=config.storage_filesystem)
    noted = read_note(storage.files, storage.experiment_fs_path) if config.name else None
    if noted is not None:
        storage.trial_dir_name, storage.trial_id, storage.trial_name = noted["trial_dir_name"], noted["trial_id"], noted["trial_name"]
        return storage, noted
    storage.trial_id = f"{uuid.uuid4().hex[:5]}_00000"
    storage.trial_name = f"{trainer}_{storage.trial_id}"
    storage.trial_dir_name = f"{trainer}_{storage.trial_id}_0_{stamp}"
    return storage, None


def lock_run(storage: StorageContext) -> int | None:
    """Keeps two drivers from training one run; an open file, whose lock goes with it.

    Object stores cannot lock; there it is for users to see to.
    """
    if not storage.files.local:
        return None
    path = os.path.join(storage.experiment_fs_path, ".lock")
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.read(lock, 100).decode(errors="replace")
        os.close(lock)
        raise ValueError(f"the run {storage.experiment_fs_path} is under way at this moment, by {other or 'another driver'}: "
                         "give RunConfig another name") from None
    except OSError:          # a file system without locks
        os.close(lock)
        return None
    os.ftruncate(lock, 0)
    os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return lock


def drop_half_line(path: str) -> None:
    """A driver that was killed may have left the last line unfinished."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb+") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)
