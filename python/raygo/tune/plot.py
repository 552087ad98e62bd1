"""Pictures of a search's results; they need matplotlib and pandas."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo.tune.search.util import needs

if TYPE_CHECKING:
    from raygo.tune.result_grid import ResultGrid

__all__ = ["learning_curves", "parallel_coordinates"]


def learning_curves(grid: ResultGrid, metric: str, x: str = "training_iteration", ax: Any = None) -> Any:
    """A line for each trial: how a metric went.

    Parameters
    ----------
    grid : ResultGrid
        The results.
    metric : str
        What is shown.
    x : str
        What it is shown over.
    ax : matplotlib.axes.Axes, optional
        Where; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = _axes(ax)
    for result in grid:
        table = result.metrics_dataframe
        if table is not None and metric in table:
            ax.plot(table[x], table[metric], label=(result.metrics or {}).get("trial_id"), alpha=0.7)
    ax.set_xlabel(x)
    ax.set_ylabel(metric)
    return ax


def parallel_coordinates(grid: ResultGrid, metric: str, parameters: list[str] | None = None, ax: Any = None) -> Any:
    """A line for each trial through the values of its config to its metric, coloured by that.

    Parameters
    ----------
    grid : ResultGrid
        The results.
    metric : str
        The last axis.
    parameters : list of str, optional
        The others, as paths such as ``opt/lr``; all that differ between trials by default.
    ax : matplotlib.axes.Axes, optional
        Where; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    import pandas

    ax = _axes(ax)
    table = grid.get_dataframe()
    names = [f"config/{name}" for name in parameters] if parameters else [c for c in table if c.startswith("config/") and table[c].astype(str).nunique() > 1]
    table = table.dropna(subset=[metric])
    places = []
    for name in [*names, metric]:
        column = table[name]
        numbers = column if pandas.api.types.is_numeric_dtype(column) else column.astype(str).astype("category").cat.codes
        span = numbers.max() - numbers.min()
        places.append((numbers - numbers.min()) / span if span else numbers * 0 + 0.5)
    from matplotlib import colormaps

    for i in range(len(table)):
        ax.plot(range(len(places)), [p.iloc[i] for p in places], color=colormaps["viridis"](float(places[-1].iloc[i])), alpha=0.7)
    ax.set_xticks(range(len(places)), [n.removeprefix("config/") for n in [*names, metric]])
    ax.set_yticks([])
    return ax


def _axes(ax: Any) -> Any:
    pyplot = needs("matplotlib", "matplotlib.pyplot", "raygo.tune.plot")
    return ax if ax is not None else pyplot.subplots()[1]
