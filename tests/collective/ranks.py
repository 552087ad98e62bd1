"""Real processes as ranks of a group: one launcher forks them, each runs a function of a test module and leaves its result in a folder.

``python ranks.py FOLDER`` is the launcher. It imports what the ranks need, and no more, before it forks: so sixty-four ranks cost a second.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 100.0  # seconds for anything that should take less than one


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Wait for what other processes do; returns what the condition gave."""
    end = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)
    return value


class FolderStore:
    """A store for a group: a file for each key."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def _path(self, key: str) -> Path:
        return self.folder / f"key.{key.replace('/', '%')}"

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_bytes(value)
        part.rename(path)

    def get(self, key: str, timeout: float) -> bytes:
        path, end = self._path(key), time.monotonic() + timeout
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if time.monotonic() > end:
                    raise TimeoutError(f"no rank set {key}") from None
                time.sleep(0.002)


class Rank:
    """What a rank's function is given."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.folder, self.rank, self.size = folder, rank, size

    def group(self, name: str = "g", **options: Any) -> Any:
        """Make the group of all ranks."""
        from raygo import _binding

        options = {"timeout": PATIENCE, **options}
        return _binding.Group(name, self.rank, self.size, FolderStore(self.folder), **options)

    def mark(self, name: str) -> None:
        """Tell the test, and the other ranks, that this rank has come to a point."""
        (self.folder / f"mark.{name}.{self.rank}").touch()

    def await_mark(self, name: str, rank: int) -> None:
        until(lambda: (self.folder / f"mark.{name}.{rank}").exists(), f"rank {rank} to come to {name}")


class Ranks:
    """The ranks, seen from the test."""

    def __init__(self, folder: Path, size: int, function: Callable[..., Any], *args: Any, env: dict[str, str] | None = None) -> None:
        self.folder, self.size = folder, size
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "task").write_bytes(pickle.dumps((size, sys.modules[function.__module__].__file__, function.__name__, args)))
        with (folder / "output").open("wb") as output:
            command = [sys.executable, __file__, str(folder)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})})

    def pid(self, rank: int) -> int:
        path = self.folder / f"pid.{rank}"
        return int(until(lambda: path.exists() and path.read_text(), f"rank {rank} to start"))

    def await_mark(self, name: str, *ranks: int) -> None:
        for rank in ranks or range(self.size):
            until(lambda rank=rank: (self.folder / f"mark.{name}.{rank}").exists() or self.result_path(rank).exists(), f"rank {rank} to come to {name}")
            assert (self.folder / f"mark.{name}.{rank}").exists(), self.results()

    def result_path(self, rank: int) -> Path:
        return self.folder / f"result.{rank}"

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def result(self, rank: int) -> Any:
        """What the rank's function returned, or the exception's text that it raised."""
        path = self.result_path(rank)
        until(lambda: path.exists() or self.process.poll() is not None, f"the result of rank {rank}; so far it wrote: {self.output()[-2000:]}")
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def results(self) -> list[Any]:
        return [self.result(rank) for rank in range(self.size)]

    def end(self) -> None:
        """Kill what is left."""
        for path in self.folder.glob("pid.*"):
            try:
                os.kill(int(path.read_text() or 0) or 2**30, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class RankError(str):
    """A rank's exception, as its traceback's text."""


def check(results: list[Any]) -> list[Any]:
    """Fail with the ranks' own tracebacks."""
    errors = [f"rank {i}: {r}" for i, r in enumerate(results) if isinstance(r, RankError) or r is None]
    assert not errors, "\n".join(errors)
    return results


def _run(folder: Path, rank: int, size: int, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    part = folder / f"pid.{rank}.part"
    part.write_text(str(os.getpid()))
    part.rename(folder / f"pid.{rank}")
    try:
        result = function(Rank(folder, rank, size), *args)
        data = pickle.dumps("ok" if result is None else result)
    except BaseException:
        data = pickle.dumps(RankError(traceback.format_exc()))
    part = folder / f"result.{rank}.part"
    part.write_bytes(data)
    part.rename(folder / f"result.{rank}")


def main(folder: Path) -> None:
    size, path, name, args = pickle.loads((folder / "task").read_bytes())
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    import raygo._binding  # noqa: F401

    children = []
    for rank in range(size):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                _run(folder, rank, size, getattr(module, name), args)
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    # As the module that the tests know, so that its classes are the same on both sides.
    import ranks

    ranks.main(Path(sys.argv[1]))
