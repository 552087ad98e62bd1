"""The command ``raygo``.

``run`` and ``version`` work in the bare package; the rest needs click and rich, which ``raygo[default]`` brings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Parameters
    ----------
    argv
        The words after the program's name; ``sys.argv[1:]`` by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["run"]:
        # Not through click: the script's own options are not ours to parse, and its exceptions not ours to catch.
        from raygo._cli._run import run

        return run(words[1:])
    if words in (["version"], ["--version"]):
        from raygo._version import __version__

        print(f"raygo {__version__}")
        return 0
    try:
        from raygo._cli._app import app
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(f"raygo's command line needs {error.name}, which is not installed: pip install 'raygo[default]'", file=sys.stderr)
        return 1
    return app(words)
