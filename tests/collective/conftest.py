"""Groups of real processes, and a session, for the tests of collectives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ranks import Ranks, check

import raygo


@pytest.fixture(scope="session")
def session() -> Iterator[None]:
    """One session with four CPUs for all tests that need one."""
    raygo.shutdown()
    raygo.init(num_cpus=4, num_gpus=0, log_to_driver=False, object_store_memory=200 * 2**20)
    yield
    raygo.shutdown()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Ranks]]:
    """Start ranks; what is left of them in the end is killed."""
    started: list[Ranks] = []

    def start(size: int, function: Callable[..., Any], *args: Any, **more: Any) -> Ranks:
        started.append(Ranks(tmp_path / f"ranks{len(started)}", size, function, *args, **more))
        return started[-1]

    yield start
    for ranks in started:
        ranks.end()


@pytest.fixture
def together(launch: Callable[..., Ranks]) -> Callable[..., list[Any]]:
    """Run a function as all ranks and return what each returned."""
    return lambda size, function, *args, **more: check(launch(size, function, *args, **more).results())
