"""Where in the program a reference was made, recorded when ``RAY_record_ref_creation_sites`` is set."""

from __future__ import annotations

import os
import sys

from raygo import _binding

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 3  # as many as Ray shows


def call_site(what: str) -> str:
    """Return the innermost frames of the user's code: ``(put object) | file:function:line | …``.

    Parameters
    ----------
    what
        How the reference came to be.
    """
    parts = [what]
    frame = sys._getframe(1)
    while frame is not None and len(parts) <= _FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith((_OWN, "<frozen ")):
            parts.append(f"{code.co_filename}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    if len(parts) == 1 and _binding.is_worker():
        parts[0] = f"{what} {_binding.task_name()}"  # before the task's own code runs
    return " | ".join(parts)
