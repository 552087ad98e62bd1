"""How much is said, for code that asks."""
from __future__ import annotations

import enum

__all__ = ["Verbosity", "disable_ipython", "has_verbosity", "set_verbosity"]


class Verbosity(enum.Enum):
    """Each level says what those before it say."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3

    def __int__(self) -> int:
        return self.value


_now = Verbosity.V3_TRIAL_DETAILS


def set_verbosity(level: int | Verbosity) -> None:
    """Say so much."""
    global _now
    _now = Verbosity(level)


def has_verbosity(level: int | Verbosity) -> bool:
    """Whether what belongs to the level is to be said."""
    return int(_now) >= int(level)


def disable_ipython() -> None:
    """Have tables shown as text in notebooks too."""
    from raygo.tune.experimental import output

    output.IS_NOTEBOOK = False
