"""How much a run says."""
from __future__ import annotations

import enum
import sys

__all__ = ["IS_NOTEBOOK", "AirVerbosity", "get_air_verbosity"]

# Whether a notebook shows what is printed.
IS_NOTEBOOK = "ipykernel" in sys.modules


class AirVerbosity(enum.IntEnum):
    """Of ``RunConfig(verbose=...)``."""

    SILENT = 0
    DEFAULT = 1
    VERBOSE = 2

    def __repr__(self) -> str:
        return str(self.value)


def get_air_verbosity(verbose: int | AirVerbosity | None = None) -> AirVerbosity | None:
    """A number as a verbosity; more than there is means all there is."""
    return None if verbose is None else AirVerbosity(min(max(int(verbose), 0), 2))
