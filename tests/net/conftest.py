"""Groups over several nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from netranks import Namespaces, Ranks, namespaces


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Processes, ended with the test."""
    started = Ranks(tmp_path)
    yield started
    started.close()


@pytest.fixture
def spaces() -> Iterator[Callable[[list[str]], Namespaces]]:
    """Make network namespaces, or skip where that is not allowed."""
    with ExitStack() as stack:

        def make(names: list[str]) -> Namespaces:
            try:
                return stack.enter_context(namespaces(names))
            except PermissionError as refusal:
                pytest.skip(f"network namespaces cannot be made here: {refusal}")

        yield make
