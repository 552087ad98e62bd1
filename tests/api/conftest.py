"""Sessions for the tests of the package."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raygo


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """One session for a module: four CPUs, two widgets, no GPU."""
    raygo.shutdown()
    context = raygo.init(num_cpus=4, num_gpus=0, resources={"widget": 2}, object_store_memory=200 << 20, log_to_driver=False)
    yield context
    raygo.shutdown()


@pytest.fixture
def driver(tmp_path: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs source as a driver of its own."""

    def run(source: str, *args: str, check: bool = True, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
        import os

        path = tmp_path / "driver.py"
        path.write_text(textwrap.dedent(source))
        done = subprocess.run([sys.executable, str(path), *args], cwd=tmp_path, text=True, capture_output=True, timeout=timeout, env={**os.environ, **env})
        if check:
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    return run


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds."""

    def wait(condition: Callable[[], Any], seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.02)

    return wait
