"""Lightning has two packages with the same contents and different classes: one of them must be chosen."""
from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def import_lightning() -> ModuleType:
    """The package that this process uses: the one that it has imported, else the one that is installed."""
    for name in _PACKAGES:
        if name in sys.modules:
            return sys.modules[name]
    for name in _PACKAGES:
        if importlib.util.find_spec(name.split(".")[0]) is not None:
            return importlib.import_module(name)
    raise ImportError("raygo's Lightning integration needs the package lightning or pytorch_lightning, and neither is installed: pip install lightning")
