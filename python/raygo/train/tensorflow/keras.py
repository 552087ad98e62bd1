"""Keras's callback for training functions."""
from __future__ import annotations

from raygo.train._keras import ReportCallback

__all__ = ["RayReportCallback", "ReportCheckpointCallback"]


class RayReportCallback(ReportCallback):
    """Reports Keras's logs and a checkpoint to the run.

    The checkpoint has the file ``model.keras``, which `raygo.train.tensorflow.TensorflowCheckpoint.get_model` reads too.

    Parameters
    ----------
    checkpoint_on : str or list of str
        At which of Keras's hooks a report has a checkpoint, as "epoch_end"; an empty list for none.
    report_metrics_on : str or list of str
        At which there is a report.
    metrics : str, list of str or dict, optional
        Which of Keras's logs; a dict has the name to report each under.  All by default.

    Examples
    --------
    >>> model.fit(data, epochs=3, callbacks=[ReportCheckpointCallback(metrics={"loss": "val_loss"})])     # doctest: +SKIP
    """


class ReportCheckpointCallback(RayReportCallback):
    """The same under the name that most scripts use."""
