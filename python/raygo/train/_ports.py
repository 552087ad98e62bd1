"""Ports for libraries that open their own sockets, later, and must be told before where all of them will be.

A worker picks a port and keeps it bound until the library is about to take it, so that nothing else gets it meanwhile; the ports are below
those that the system gives to outgoing connections, which could not be held off in the moment between.
"""
from __future__ import annotations

import random
import socket

_PORTS = range(12400, 32000)
_TRIES = 200

_reserved: socket.socket | None = None


def reserve() -> int:
    """Keep a port for this process."""
    global _reserved
    chosen = random.SystemRandom()
    for _ in range(_TRIES):
        made = socket.socket()
        try:
            made.bind(("", chosen.choice(_PORTS)))
        except OSError:
            made.close()
            continue
        release()
        _reserved = made
        return int(made.getsockname()[1])
    raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop} was found in {_TRIES} tries")


def release() -> None:
    """The library takes it now."""
    global _reserved
    if _reserved is not None:
        _reserved.close()
        _reserved = None


def addresses(worker_group: object) -> list[tuple[str, int]]:
    """Reserve a port in each worker; their addresses, by rank."""
    from raygo.train._worker_group import WorkerGroup

    assert isinstance(worker_group, WorkerGroup)
    workers = worker_group.workers
    one_machine = len({w.metadata.node_id for w in workers}) == 1
    ports = worker_group.execute(reserve)
    return [("127.0.0.1" if one_machine else w.metadata.node_ip, port) for w, port in zip(workers, ports, strict=True)]
