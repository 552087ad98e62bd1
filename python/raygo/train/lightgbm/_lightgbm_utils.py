"""The callback that reports each iteration, and frames as LightGBM takes them."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lightgbm

from raygo.train._boosting import Destination, Metrics, Reporter, checkpoint_of, model_file
from raygo.train._checkpoint import Checkpoint

if TYPE_CHECKING:
    import pandas as pd
    from lightgbm.callback import CallbackEnv

__all__ = ["RayTrainReportCallback", "normalize_pandas_for_lightgbm"]


def _metrics(entries: list[tuple[Any, ...]]) -> dict[str, Any]:
    """The evaluation's values by name; of a cross-validation, whose entries have the deviation as a fifth value, "-mean" and "-stdv"."""
    found = {}
    for data, metric, value, _, *deviation in entries:
        if deviation:
            found[f"{data}-{metric}-mean"], found[f"{data}-{metric}-stdv"] = value, deviation[0]
        else:
            found[f"{data}-{metric}"] = value
    return found


class ReportCallback:
    """Reports to `_destination`; the model is the file `filename` of a checkpoint."""

    CHECKPOINT_NAME = "model.txt"
    _destination: Destination

    def __init__(self, metrics: Metrics = None, filename: str = CHECKPOINT_NAME, frequency: int = 0, checkpoint_at_end: bool = True,
                 results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        self._reporter = Reporter(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> lightgbm.Booster:
        """The model of a checkpoint that this callback reported.

        Parameters
        ----------
        checkpoint : Checkpoint
            The checkpoint.
        filename : str
            Its file, if the callback was given another one.
        """
        with checkpoint.as_directory() as folder:
            return lightgbm.Booster(model_file=model_file(folder, filename))

    def __call__(self, env: CallbackEnv) -> None:
        """Report the iteration."""
        found = _metrics(env.evaluation_result_list or [])
        said = self._reporter.chosen(found)
        last = env.iteration == env.end_iteration - 1
        if not (self._reporter.is_due(env.iteration) or (last and self._reporter.at_end)) or not self._destination.saves():
            self._destination.report(said)
            return
        with checkpoint_of(env.model.save_model, self._reporter.filename) as checkpoint:
            self._destination.report(said, checkpoint)


class RayTrainReportCallback(ReportCallback):
    """Reports the evaluation's metrics after every iteration, and checkpoints.

    Parameters
    ----------
    metrics : str, list of str or dict, optional
        Which metrics, as "valid-binary_error", or "valid-binary_error-mean" and "valid-binary_error-stdv" of `lightgbm.cv`; a dict has
        the name to report each under.  All by default.
    filename : str
        The model's file in a checkpoint.
    frequency : int
        A checkpoint every so many iterations; 0: none before the end.
    checkpoint_at_end : bool
        A checkpoint with the last iteration.
    results_postprocessing_fn : callable, optional
        Takes the dict of metrics and gives what is reported.

    Notes
    -----
    Metrics are those of rank 0, on its own evaluation sets: LightGBM does not gather them.

    Examples
    --------
    >>> lightgbm.train({**params, **get_network_params()}, train, valid_sets=[valid], callbacks=[RayTrainReportCallback()])   # doctest: +SKIP
    """

    _destination = Destination()


def normalize_pandas_for_lightgbm(df: pd.DataFrame) -> pd.DataFrame:
    """The frame with types that LightGBM takes: nullable and Arrow numbers as NumPy's, text as categories."""
    import numpy as np
    import pandas as pd

    made = {}
    for name in df.columns:
        column = df[name]
        if isinstance(column.dtype, pd.CategoricalDtype) or isinstance(column.dtype, np.dtype) and column.dtype != object:
            made[name] = column
        elif pd.api.types.is_bool_dtype(column.dtype) and not column.hasnans:
            made[name] = column.astype(bool)
        elif pd.api.types.is_integer_dtype(column.dtype) and not column.hasnans:
            made[name] = column.astype(np.int64)
        elif pd.api.types.is_numeric_dtype(column.dtype):
            made[name] = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), index=column.index)
        else:
            made[name] = column.astype("category")
    return pd.DataFrame(made, index=df.index)
