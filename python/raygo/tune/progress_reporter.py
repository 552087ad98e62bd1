"""placeholder"""
from typing import Any


def reporter_for(verbose: Any, given: Any, metric: Any, mode: Any) -> Any:
    return None
