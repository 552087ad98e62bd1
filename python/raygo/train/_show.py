"""Shows a run: a live table in a terminal and in a notebook, a line now and then elsewhere."""
from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.train._gather import Gather
    from raygo.train._run import Run
    from raygo.train._worker_group import Worker, WorkerGroup

# Elsewhere than in a terminal or notebook: how often at most a line is written.
_LINE_S = 5.0
# How often a table is drawn at most.
_DRAW_S = 0.1
_WIDE = 8
_HIDDEN = frozenset(("timestamp", "date", "pid", "hostname", "node_ip", "trial_id", "training_iteration", "time_this_iter_s", "time_total_s",
                     "iterations_since_restore", "checkpoint_dir_name"))


class RunView:
    """What there is to see of a run; a place to show it is made from it.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self.name = str(run.storage.trial_name)
        self.folder = run.storage.trial_fs_path
        self.begin = time.monotonic()
        self.state = "starting"
        self._workers: list[Worker] = []
        self._gather: Gather | None = None
        self.metrics: dict[str, Any] = {}
        self.profiles: dict[int, tuple[float, float, float]] = {}
        self.checkpoint = ""
        self.reports = 0
        self.failures = 0

    def started(self, group: WorkerGroup, gather: Gather) -> None:
        """An attempt begins."""
        self._workers, self._gather, self.state = list(group.workers), gather, "running"
        self.profiles = {}

    def pids(self) -> list[int]:
        """The workers' processes."""
        return [worker.metadata.pid for worker in self._workers]

    def head(self) -> str:
        """One line about the whole."""
        failed = f", {self.failures} failure(s)" if self.failures else ""
        kept = f", newest checkpoint {self.checkpoint}" if self.checkpoint else ""
        return f"{self.name}: {self.state}, {self.reports} report(s) in {time.monotonic() - self.begin:.1f} s{kept}{failed}"

    def numbers(self) -> dict[str, str]:
        """The last report's metrics, without what raygo fills in."""
        shown = {}
        for key, value in self.metrics.items():
            if key not in _HIDDEN and isinstance(value, (int, float, str, bool)):
                shown[str(key)] = f"{value:.5g}" if isinstance(value, float) else str(value)[:40]
        return shown

    def workers(self) -> list[tuple[str, ...]]:
        """A row for each worker: rank, process, state, reports, and where its time went."""
        gather = self._gather
        if gather is None:
            return []
        rows: list[tuple[str, ...]] = []
        for rank, worker in enumerate(self._workers):
            state = "failed" if rank in gather.errors else "done" if rank in gather.returned else "running"
            rows.append((str(rank), f"{worker.metadata.pid} on {worker.metadata.hostname}", state, str(gather.reached[rank]),
                         *shares(self.profiles.get(rank))))
        return rows


def shares(profile: tuple[float, float, float] | None) -> tuple[str, str, str]:
    """Parts of a step's time in data, computing and communication, in percent."""
    if profile is None or profile[0] <= 0:
        return "", "", ""
    wall, data, communication = profile
    return tuple(f"{100 * max(0.0, part) / wall:.0f} %" for part in (data, wall - data - communication, communication))  # type: ignore[return-value]


_COLUMNS = ("rank", "process", "state", "reports", "data", "compute", "communication")


class Lines:
    """Where nothing can be drawn over: a line now and then, on stderr."""

    def __init__(self, view: RunView, verbose: int) -> None:
        self._view = view
        self._every = 0.0 if verbose > 1 else _LINE_S
        self._said = -1e9

    def started(self) -> None:
        pids = self._view.pids()
        self._write(f"{self._view.name}: {len(pids)} worker(s) started (pid {', '.join(map(str, pids))}); results in {self._view.folder}")

    def reported(self) -> None:
        if time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
            self._write(f"{self._view.head()}: {', '.join(f'{key}={value}' for key, value in self._view.numbers().items())}")

    def ended(self) -> None:
        self._write(self._view.head())

    def _write(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Terminal:
    """A table that is drawn over, by rich."""

    def __init__(self, view: RunView, verbose: int) -> None:
        from rich.live import Live

        self._view = view
        self._live = Live(get_renderable=self._table, refresh_per_second=4, transient=False)
        self._live.start()

    def started(self) -> None:
        self._live.refresh()

    def reported(self) -> None:
        """The table is drawn a few times a second anyway."""

    def ended(self) -> None:
        self._live.stop()

    def _table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        view = self._view
        workers = Table(*_COLUMNS, box=None, pad_edge=False)
        for row in view.workers():
            workers.add_row(*row)
        numbers = view.numbers()
        metrics = Table(*list(numbers)[:_WIDE], box=None, pad_edge=False)
        if numbers:
            metrics.add_row(*list(numbers.values())[:_WIDE])
        return Group(Text(view.head(), style="bold"), workers, metrics, Text(view.folder, style="dim"))


class Notebook:
    """A table of HTML that is put in the place of the one before."""

    def __init__(self, view: RunView, verbose: int) -> None:
        from IPython.display import HTML, display

        self._view = view
        self._html = HTML
        self._drawn = time.monotonic()
        self._handle = display(HTML(html(view)), display_id=True)

    def started(self) -> None:
        self._draw()

    def reported(self) -> None:
        if time.monotonic() - self._drawn >= _DRAW_S:
            self._draw()

    def ended(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if self._handle is not None:
            self._handle.update(self._html(html(self._view)))


def html(view: RunView) -> str:
    """A run as HTML."""
    def row(cells: Any, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    numbers = view.numbers()
    workers = row(_COLUMNS, "th") + "".join(row(worker, "td") for worker in view.workers())
    metrics = row(numbers, "th") + row(numbers.values(), "td")
    return f"<div><b>{escape(view.head())}</b><table>{workers}</table><table>{metrics}</table><small>{escape(view.folder)}</small></div>"


def place_for(view: RunView, verbose: Any) -> Any:
    """Where a run is shown; None where it is not.

    Parameters
    ----------
    verbose : int, optional
        0: nowhere; 1: a table, or a line now and then; 2: a line for each report.  1 by default.
    """
    level = 1 if verbose in (None, "DEPRECATED") else int(verbose)
    if level <= 0:
        return None
    kernel = sys.modules.get("IPython")
    if kernel is not None and (shell := kernel.get_ipython()) is not None and type(shell).__name__ == "ZMQInteractiveShell":
        return Notebook(view, level)
    if level == 1 and sys.stdout.isatty():
        try:
            return Terminal(view, level)
        except ImportError:      # without the extra raygo[default]
            pass
    return Lines(view, level)
