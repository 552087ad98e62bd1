"""Finds the running local engine and asks it things.

The command is a client like any program: it reads ``session.json`` in the session's folder, connects to the socket named there, and makes
calls of engine/wire/PROTOCOL.md.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from raygo._version import __version__

CONNECT_TIMEOUT_S = 5.0
OWN_NAME = "raygo command line"  # as the engine notes this client among its jobs


class NoSession(click.ClickException):
    """No engine runs, or none that answers."""

    exit_code = 3


def folder_of_sessions() -> Path:
    """Return where this user's sessions are."""
    return Path(os.environ.get("RAYGO_TMPDIR") or tempfile.gettempdir()) / f"raygo-{os.getuid()}"


def find(address: str | None = None, running: bool = True) -> dict[str, Any]:
    """Return what a session says of itself, with its ``folder``.

    Parameters
    ----------
    address
        A session's folder; by default the newest session.
    running
        Whether its engine must still run: with several drivers, the newest session is not always one that does.

    Raises
    ------
    NoSession
        There is none; the message says where was looked and what to do.
    """
    if address:
        session = _read(Path(address))
        if running and session.get("ended"):
            raise NoSession(f"the engine of {address} ended at {session['ended']}.")
    else:
        root = folder_of_sessions()
        session = next((made for made in map(_read, _newest_first(root)) if not running or _runs(made)), {})
        if not session:
            raise NoSession(f"no {'running engine' if running else 'session'} in {root}. A program starts one with raygo.init().")
    if session.get("version", __version__) != __version__:
        raise NoSession(f"the engine of {session['folder']} is raygo {session['version']}, this command is {__version__}: use that installation's command.")
    return session


def _newest_first(root: Path) -> list[Path]:
    # Names begin with the time.  One that was given a name of its own sorts anywhere, hence the link first.
    latest = root / "session_latest"
    others = sorted((path.parent for path in root.glob("session_*/session.json") if path.parent != latest), reverse=True)
    return [latest, *others] if (latest / "session.json").exists() else others


def _read(folder: Path) -> dict[str, Any]:
    try:
        session: dict[str, Any] = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoSession(f"no running engine: {folder} has no session.json. A program starts one with raygo.init().") from None
    except (OSError, ValueError) as error:
        raise NoSession(f"the session in {folder} cannot be read: {error}") from error
    return {**session, "folder": str(folder.resolve())}


def _runs(session: dict[str, Any]) -> bool:
    if session.get("ended"):
        return False
    try:
        os.kill(session["pid"], 0)
    except ProcessLookupError:
        return False
    return True


class Engine:
    """A connection for the length of one command."""

    def __init__(self, address: str | None = None) -> None:
        from raygo import _binding

        self.session = find(address)
        self._binding = _binding
        hello = {
            "version": __version__,
            "role": "client",
            "pid": os.getpid(),
            "namespace": "",
            "sys_path": [],
            "cwd": os.getcwd(),
            "main_path": OWN_NAME,
            "executable": "",
            "runtime_env": "",
            "log_to_driver": False,
            "env": {},
            "job_name": OWN_NAME,
        }
        try:
            _binding.connect(self.session["socket"], _binding.pack(hello), CONNECT_TIMEOUT_S)
        except Exception as error:
            raise NoSession(f"the engine of {self.session['folder']} (pid {self.session.get('pid', '?')}) does not answer: {error}") from error

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._binding.shutdown(1.0)

    def call(self, method: str, argument: Any = None) -> Any:
        """Make one call and return its answer; an error becomes the command's."""
        try:
            answer = self._binding.call(self._binding.pack([method, argument]), CONNECT_TIMEOUT_S)
        except self._binding.CallError as error:
            raise click.ClickException(f"{method}: {error.message}") from error
        return self._binding.unpack(answer)

    def state(self, kind: str, limit: int, filters: list[list[str]], detail: bool = False) -> list[dict[str, Any]]:
        """Return rows of the state API, without this command's own."""
        rows = self.call(f"state.{kind}", {"limit": limit, "filters": filters, "detail": detail}) or []
        if kind == "workers":
            return [row for row in rows if row.get("pid") != os.getpid()]
        return [row for row in rows if kind != "jobs" or row.get("entrypoint") != OWN_NAME]
