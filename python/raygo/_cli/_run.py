"""``raygo run``: an unchanged Ray script, on raygo."""

from __future__ import annotations

import builtins
import os
import runpy
import sys
import types
from collections.abc import Sequence
from pathlib import Path

USAGE = """\
Usage: raygo run SCRIPT [ARGUMENTS]...
       raygo run -m MODULE [ARGUMENTS]...

Runs a Python script that says `import ray` on raygo, without a change to it.
"""


def run(words: Sequence[str]) -> int:
    """Run a script or module as ``__main__`` with ``import ray`` meaning raygo.

    Parameters
    ----------
    words
        The script's path and its arguments, or ``-m``, a module's name and its arguments.

    Returns
    -------
    int
        1 after an exception that nothing caught, 2 when there is no such script; otherwise the script ends the process as it would alone.
    """
    words = list(words)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if words else 2
    if words[0] == "-m":
        return _run_module(words[1:])
    return _run_script(words)


def _run_script(words: list[str]) -> int:
    path = Path(words[0])
    try:
        source = path.read_bytes()
    except OSError as error:
        print(f"raygo run: cannot read {path}: {error.strerror}", file=sys.stderr)
        return 2
    _prepare(words, str(path.resolve().parent))
    # A real module that stays, not runpy's temporary one: exit handlers and threads still need its globals when the script has ended.
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(path), __builtins__=builtins, __spec__=None)
    sys.modules["__main__"] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        return _report(error)
    return 0


def _run_module(words: list[str]) -> int:
    if not words:
        print("raygo run -m: a module's name is needed", file=sys.stderr)
        return 2
    _prepare(words, os.getcwd())
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except Exception as error:
        return _report(error)
    return 0


def _prepare(words: list[str], folder: str) -> None:
    """Make argv and the module path what the script would find alone, and ``import ray`` mean raygo."""
    sys.argv[:] = words
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder  # where the folder of `raygo` itself stands now
    import raygo

    raygo.install_as_ray()


def _report(error: Exception) -> int:
    """Print an exception as Python would, from the script's own first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    return 1
