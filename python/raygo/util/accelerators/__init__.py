"""Names of accelerators, for the option ``accelerator_type``."""
import warnings as _warnings
from typing import Any as _Any

from raygo.util.accelerators import accelerators as _names
from raygo.util.accelerators.accelerators import *  # noqa: F403 - the names are the module


def __getattr__(name: str) -> _Any:
    if name == "NVIDIA_TESLA_A100":      # an early misnomer that scripts still use
        from raygo.util.annotations import RayDeprecationWarning

        _warnings.warn("NVIDIA_TESLA_A100 is deprecated: use NVIDIA_A100", RayDeprecationWarning, stacklevel=2)
        return _names.NVIDIA_A100
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
