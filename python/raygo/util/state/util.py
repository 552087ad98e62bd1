"""Small things that the state API needs."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def convert_string_to_type(val: str | int | float | bool | None, convert_type: Callable[[Any], Any]) -> Any:
    """Text as an int, float or bool.

    Examples
    --------
    >>> convert_string_to_type("3", int), convert_string_to_type("false", bool)
    (3, False)
    """
    if val is None or (isinstance(convert_type, type) and isinstance(val, convert_type)):
        return val
    if convert_type is bool:
        if isinstance(val, str):
            if val.lower() in ("true", "1"):
                return True
            if val.lower() in ("false", "0"):
                return False
        raise ValueError(f"Failed to convert {val!r} to bool: true, false, 1 or 0")
    return convert_type(val)
