"""What a search looks like while it runs."""
from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from raygo.train._result import dig
from raygo.tune.experiment.trial import Trial
from raygo.tune.result import AUTO_RESULT_KEYS

if TYPE_CHECKING:
    from raygo.tune.execution.controller import TuneController

__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter", "TuneReporterBase", "reporter_for"]

SKIP_RESULTS_IN_REPORT = {"config", "trial_id", "experiment_tag", "done"}
_STATES = (Trial.RUNNING, Trial.PENDING, Trial.PAUSED, Trial.TERMINATED, Trial.ERROR)
_COLOURS = {Trial.RUNNING: "green", Trial.PENDING: "dim", Trial.PAUSED: "yellow", Trial.TERMINATED: "", Trial.ERROR: "red"}


class ProgressReporter:
    """Subclass it to show a search in another way, and give an instance to ``RunConfig(progress_reporter=...)``."""

    def setup(self, start_time: float | None = None, total_samples: int | None = None, metric: str | None = None, mode: str | None = None,
              **kwargs: Any) -> None:
        """Before the search."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Asked after each event."""
        raise NotImplementedError

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        """Show the trials."""
        raise NotImplementedError


class TuneReporterBase(ProgressReporter):
    """A table of trials as text.

    Parameters
    ----------
    metric_columns, parameter_columns : list or dict, optional
        What has a column, by another name where it is a dict.  Metrics and searched values by default.
    total_samples : int, optional
        How many trials there will be.
    max_progress_rows, max_error_rows : int
        How many trials are shown.
    max_column_length : int
        How wide a column may be.
    max_report_frequency : float
        Seconds between two tables.
    infer_limit : int
        How many metrics are chosen where none are given.
    print_intermediate_tables : bool, optional
        Whether tables are shown before the end.
    metric, mode : str, optional
        What "best" means.
    sort_by_metric : bool
        The best first.
    """

    DEFAULT_COLUMNS = {"mean_accuracy": "acc", "mean_loss": "loss", "training_iteration": "iter", "time_total_s": "total time (s)",
                       "timesteps_total": "ts", "episode_reward_mean": "reward"}
    VALID_SUMMARY_TYPES = (int, float, bool, str)

    def __init__(self, *, metric_columns: Any = None, parameter_columns: Any = None, total_samples: int | None = None, max_progress_rows: int = 20,
                 max_error_rows: int = 20, max_column_length: int = 20, max_report_frequency: float = 5, infer_limit: int = 3,
                 print_intermediate_tables: bool | None = None, metric: str | None = None, mode: str | None = None, sort_by_metric: bool = False) -> None:
        self._metric_columns = _as_columns(metric_columns)
        self._parameter_columns = _as_columns(parameter_columns)
        self._total_samples = total_samples
        self._max_progress_rows, self._max_error_rows = max_progress_rows, max_error_rows
        self._max_column_length, self._infer_limit = max_column_length, infer_limit
        self._frequency = max_report_frequency
        self._intermediate = print_intermediate_tables is not False
        self._metric, self._mode, self._sort = metric, mode, sort_by_metric
        self._start_time = time.time()
        self._last = 0.0

    def setup(self, start_time: float | None = None, total_samples: int | None = None, metric: str | None = None, mode: str | None = None,
              **kwargs: Any) -> None:
        self.set_start_time(start_time)
        self.set_total_samples(total_samples)
        self.set_search_properties(metric, mode)

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """What "best" means, unless that is known."""
        self._metric, self._mode = self._metric or metric, self._mode or mode
        return True

    def set_total_samples(self, total_samples: int | None) -> None:
        """How many trials there will be, unless that is known."""
        self._total_samples = self._total_samples or total_samples

    def set_start_time(self, timestamp: float | None = None) -> None:
        """When the search began."""
        self._start_time = timestamp if timestamp is not None else time.time()

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        if done or time.time() - self._last >= self._frequency:
            self._last = time.time()
            return done or self._intermediate
        return False

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """One more metric, beside the default ones if none were given."""
        self._metric_columns = _with_column(self.DEFAULT_COLUMNS if self._metric_columns is None else self._metric_columns, metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """One more parameter."""
        self._parameter_columns = _with_column(self._parameter_columns or {}, parameter, representation)

    # ---- the table

    def table(self, trials: list[Trial]) -> tuple[list[str], list[list[str]]]:
        """Titles and rows: running trials first, then those that ended last."""
        metrics = self._metric_columns if self._metric_columns is not None else self._inferred(trials)
        metrics = {name: title for name, title in metrics.items() if any(dig(t.last_result, name) is not None for t in trials)}
        params = self._parameter_columns
        if params is None:
            params = {name: name for t in trials[:50] for name in t.evaluated_params}
            params = dict(list(params.items())[:5])
        order = {state: i for i, state in enumerate((Trial.RUNNING, Trial.PAUSED, Trial.ERROR, Trial.TERMINATED, Trial.PENDING))}
        if self._sort and self._metric:
            shown = sorted(trials, key=lambda t: self._rank(t), reverse=True)
        else:
            newest = trials[::-1]
            shown = sorted(newest, key=lambda t: order[t.status])
        rows = []
        for trial in shown[:self._max_progress_rows]:
            cells: list[Any] = [str(trial), trial.status]
            cells += [dig(trial.config, name) for name in params]
            cells += [dig(trial.last_result, name) for name in metrics]
            rows.append([self._cell(cell) for cell in cells])
        return ["trial", "status", *params.values(), *metrics.values()], rows

    def _inferred(self, trials: list[Trial]) -> dict[str, str]:
        first = {"training_iteration": "iter", "time_total_s": "total time (s)"}
        own: dict[str, str] = {self._metric: self._metric} if self._metric else {}
        for trial in trials[-20:]:
            for key, value in trial.last_result.items():
                if len(own) < self._infer_limit and key not in AUTO_RESULT_KEYS and isinstance(value, (int, float)):
                    own.setdefault(key, key)
        return {**first, **own}

    def _cell(self, value: Any) -> str:
        text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        return text if len(text) <= self._max_column_length * 2 else text[:self._max_column_length * 2 - 3] + "..."

    def _rank(self, trial: Trial) -> float:
        value = dig(trial.last_result, self._metric) if self._metric else None
        if value is None or value != value:
            return float("-inf")
        return float(value) if self._mode != "min" else -float(value)

    def best(self, trials: list[Trial]) -> Trial | None:
        """The best trial so far."""
        known = [t for t in trials if self._rank(t) > float("-inf")]
        return max(known, key=self._rank, default=None)

    def summary(self, trials: list[Trial]) -> str:
        """How many trials are in which state, and the best."""
        counts = {state: sum(t.status == state for t in trials) for state in _STATES}
        total = f"/{self._total_samples}" if self._total_samples and self._total_samples < sys.maxsize else ""
        text = f"{len(trials)}{total} trials: " + ", ".join(f"{n} {state}" for state, n in counts.items() if n)
        text += f"; {time.time() - self._start_time:.1f} s"
        best = self.best(trials)
        if best is not None and self._metric:
            values = ", ".join(f"{key}={self._cell(value)}" for key, value in best.evaluated_params.items())
            text += f"\nbest so far: {self._metric}={self._cell(dig(best.last_result, self._metric))} of {best} ({values})"
        return text

    def errors(self, trials: list[Trial]) -> str:
        """The failed trials, and where their errors stand."""
        failed = [t for t in trials if t.status == Trial.ERROR][:self._max_error_rows]
        return "\n".join(f"{t} failed: {_last_line(t.error_text)} See {t.error_file}" for t in failed)

    def text(self, trials: list[Trial], *sys_info: str) -> str:
        """All of it, as plain text."""
        titles, rows = self.table(trials)
        widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [titles, *rows]]
        hidden = len(trials) - len(rows)
        more = [f"... and {hidden} more"] if hidden > 0 else []
        return "\n".join([self.summary(trials), *sys_info, *lines, *more, *filter(None, [self.errors(trials)])])


class CLIReporter(TuneReporterBase):
    """Prints the table now and then.  Parameters are those of TuneReporterBase."""

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        print(self.text(trials, *sys_info), flush=True)


class JupyterNotebookReporter(TuneReporterBase):
    """Shows the table in a notebook's cell, always the newest.

    Parameters
    ----------
    overwrite : bool
        Whether the newest takes the place of the one before.
    """

    def __init__(self, *, overwrite: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._overwrite = overwrite

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        self.display(self.html(trials))

    def html(self, trials: list[Trial]) -> str:
        """The table as HTML."""
        from html import escape

        titles, rows = self.table(trials)
        head = "".join(f"<th>{escape(title)}</th>" for title in titles)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        notes = "<br>".join(escape(line) for line in f"{self.summary(trials)}\n{self.errors(trials)}".strip().splitlines())
        return f"<div>{notes}</div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def display(self, string: str) -> None:
        """Show HTML."""
        from IPython.display import HTML, clear_output, display

        if self._overwrite:
            clear_output(wait=True)
        display(HTML(string))


class LiveTable(TuneReporterBase):
    """The table in a terminal, kept up to date in its place."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_report_frequency=0.5, **kwargs)
        self._live: Any = None

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text

        titles, rows = self.table(trials)
        table = Table(*titles, box=None, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row), style=_COLOURS.get(row[1], ""))
        shown = Group(Text(self.summary(trials)), table, Text(self.errors(trials), style="red"))
        if self._live is None:
            self._live = Live(shown, auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(shown, refresh=True)
        if done:
            self._live.stop()
            self._live = None


class Shown:
    """Drives a reporter from the driver's loop."""

    def __init__(self, reporter: ProgressReporter, metric: str | None, mode: str | None, verbose: int) -> None:
        self.reporter, self._metric, self._mode, self._verbose = reporter, metric, mode, verbose
        self._printed: dict[str, int] = {}

    def begin(self, experiment: Any, search: Any, scheduler: Any, metric: Any, mode: Any) -> None:
        """The search begins."""
        self.reporter.setup(start_time=time.time(), total_samples=search.total_samples, metric=metric if isinstance(metric, str) else None, mode=mode)

    def due_in(self) -> float | None:
        """When to look again, though nothing happens."""
        if isinstance(self.reporter, TuneReporterBase):
            return max(0.1, self.reporter._frequency - (time.time() - self.reporter._last))
        return 1.0

    def tick(self, controller: TuneController) -> None:
        """Something may have happened."""
        if self._verbose >= 2 and not isinstance(self.reporter, LiveTable):
            self._results(controller)
        if self.reporter.should_report(controller.trials, done=False):
            self.reporter.report(controller.trials, False)

    def _results(self, controller: TuneController) -> None:
        for trial in controller.get_live_trials_in_order():
            at = trial.last_result.get("training_iteration", 0)
            if at != self._printed.get(trial.trial_id, 0):
                self._printed[trial.trial_id] = at
                own = {k: v for k, v in trial.last_result.items() if k not in AUTO_RESULT_KEYS}
                print(f"{trial} at iteration {at}: {own}", flush=True)

    def end(self, controller: TuneController) -> None:
        """The search has ended."""
        if self.reporter.should_report(controller.trials, done=True):
            self.reporter.report(controller.trials, True)


def reporter_for(verbose: Any, given: Any, metric: Any, mode: Any) -> Shown | None:
    """What shows a search: nothing for verbose=0; else a live table in a terminal, HTML in a notebook, plain lines elsewhere."""
    import os

    level = int(verbose if verbose is not None else os.environ.get("RAY_AIR_VERBOSITY", "1"))
    name = metric if isinstance(metric, str) else None
    if given is not None:
        if not isinstance(given, ProgressReporter):
            raise ValueError(f"progress_reporter is a {type(given).__name__}: give a ProgressReporter")
        return Shown(given, name, mode, level)
    if level <= 0:
        return None
    if in_notebook():
        return Shown(JupyterNotebookReporter(metric=name, mode=mode, max_report_frequency=1), name, mode, level)
    if sys.stdout.isatty():
        try:
            import rich  # noqa: F401
        except ImportError:
            pass
        else:
            return Shown(LiveTable(metric=name, mode=mode), name, mode, level)
    return Shown(CLIReporter(metric=name, mode=mode, max_report_frequency=30), name, mode, level)


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    shell = sys.modules.get("IPython")
    current = shell.get_ipython() if shell is not None else None
    return current is not None and "IPKernelApp" in getattr(current, "config", {})


def _as_columns(columns: Any) -> dict[str, str] | None:
    if columns is None or isinstance(columns, dict):
        return columns
    return {name: name for name in columns}


def _with_column(columns: dict[str, str], name: str, title: str | None) -> dict[str, str]:
    if name in columns:
        raise ValueError(f"Column {name} already exists.")
    return {**columns, name: title or name}


def _last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""
