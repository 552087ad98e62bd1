"""Names of Ray that are not in raygo: they can be imported, and say why when they are used."""
from __future__ import annotations

from typing import Any


def absent(name: str, why: str) -> Any:
    """A class that cannot be made.

    Parameters
    ----------
    name : str
        Its full name.
    why : str
        Why not, and what to use.
    """

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{name} is not in raygo: {why}")

    module, _, short = name.rpartition(".")
    return type(short, (), {"__init__": refuse, "__module__": module, "__doc__": f"Not in raygo: {why}", "__raygo_stub__": True})
