"""Ranks of a group as processes, on nodes that are network namespaces, or that only say they are nodes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

PRELUDE = """
import json, os, sys, time
import numpy as np
import raygo
from raygo import _binding
from raygo._binding import Group, GroupError

RANK, SIZE, NODE, FOLDER = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
LIBRARY = os.path.join(os.path.dirname(raygo.__file__), "libraygo_collective.so")
DTYPES = {name: i for i, name in enumerate("int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 bool".split())}
OPS = {name: i for i, name in enumerate("sum avg product min max band bor bxor".split())}

class Store:
    def set(self, key, value):
        path = os.path.join(FOLDER, key.replace("/", "@"))
        with open(path + ".new" + str(RANK), "wb") as f:
            f.write(value)
        os.replace(f.name, path)

    def get(self, key, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                with open(os.path.join(FOLDER, key.replace("/", "@")), "rb") as f:
                    return f.read()
            except FileNotFoundError:
                if time.monotonic() > end:
                    raise TimeoutError(key) from None
                time.sleep(0.005)

def open_group(name="g", timeout=60.0, **more):
    return Group(name, RANK, SIZE, Store(), timeout=timeout, node=NODE, library=LIBRARY, **more)

def address(a):
    return a.ctypes.data

def mark(name):
    open(os.path.join(FOLDER, "mark-" + name), "w").close()

def await_mark(name):
    while not os.path.exists(os.path.join(FOLDER, "mark-" + name)):
        time.sleep(0.01)
"""


class Ranks:
    """Processes that run one text each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, layout: list[str], code: str, spaces: Namespaces | None = None, **env: str) -> None:
        """Start one rank per entry of `layout`, which names its node, and with `spaces` its namespace."""
        script = self.folder / "rank.py"
        script.write_text(PRELUDE + textwrap.dedent(code))
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **env}
        if spaces is None:
            environ["RAYGO_COLLECTIVE_ADDRESS"] = "127.0.0.1"
        for rank, node in enumerate(layout):
            inside = ["ip", "netns", "exec", spaces.name(node)] if spaces else []
            command = [*inside, sys.executable, str(script), str(rank), str(len(layout)), node, str(self.folder)]
            self.processes.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))

    def reached(self, name: str, timeout: float = 60) -> None:
        """Wait until a rank has called mark(name)."""
        end = time.monotonic() + timeout
        while not (self.folder / f"mark-{name}").exists():
            assert time.monotonic() < end, f"no rank marked {name}"
            time.sleep(0.01)

    def mark(self, name: str) -> None:
        """Let ranks go on that await this."""
        (self.folder / f"mark-{name}").touch()

    def outputs(self, timeout: float = 120) -> list[str]:
        """Wait for all and return what they wrote."""
        return [p.communicate(timeout=timeout)[0] for p in self.processes]

    def check(self, timeout: float = 120) -> list[str]:
        """Wait for all and fail if one did."""
        out = self.outputs(timeout)
        for rank, process in enumerate(self.processes):
            assert process.returncode == 0, f"rank {rank} ended with {process.returncode}:\n{out[rank]}"
        return out

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()


class Namespaces:
    """Network namespaces that a bridge joins, with the addresses 10.77.0.1, .2, …"""

    def __init__(self, names: list[str]) -> None:
        self.prefix = f"rg{os.getpid()}"
        self.nodes = names

    def name(self, node: str) -> str:
        """The namespace of a node."""
        return f"{self.prefix}{node}"

    def run(self, *command: str) -> None:
        """Run a command of iproute2."""
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(f"{' '.join(command)}: {done.stderr.strip()}")

    def open(self) -> None:
        """Make them."""
        hub = self.name("hub")
        self.run("ip", "netns", "add", hub)
        self.run("ip", "-n", hub, "link", "add", "br0", "type", "bridge")
        self.run("ip", "-n", hub, "link", "set", "br0", "up")
        for i, node in enumerate(self.nodes):
            space = self.name(node)
            self.run("ip", "netns", "add", space)
            self.run("ip", "-n", hub, "link", "add", f"to{node}", "type", "veth", "peer", "name", "eth0", "netns", space)
            self.run("ip", "-n", hub, "link", "set", f"to{node}", "master", "br0", "up")
            self.run("ip", "-n", space, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            self.run("ip", "-n", space, "link", "set", "eth0", "up")
            self.run("ip", "-n", space, "link", "set", "lo", "up")

    def cut(self, node: str) -> None:
        """Let nothing reach a node any more, without any sign of that to the others."""
        self.run("ip", "-n", self.name("hub"), "link", "set", f"to{node}", "down")

    def slow(self, node: str, rate: str, delay: str) -> None:
        """Narrow what leaves a node."""
        self.run("ip", "netns", "exec", self.name(node), "tc", "qdisc", "add", "dev", "eth0", "root", "netem", "rate", rate, "delay", delay)

    def close(self) -> None:
        """Remove them."""
        for node in [*self.nodes, "hub"]:
            subprocess.run(["ip", "netns", "del", self.name(node)], capture_output=True, check=False)


@contextlib.contextmanager
def namespaces(names: list[str]) -> Iterator[Namespaces]:
    """Namespaces for these nodes; PermissionError where they cannot be had."""
    if shutil.which("ip") is None:
        raise PermissionError("iproute2's ip is not installed")
    spaces = Namespaces(names)
    try:
        spaces.open()
        yield spaces
    finally:
        spaces.close()
