"""The callback that reports what Keras logs."""
from __future__ import annotations

import os
import tempfile
from typing import Any

from raygo.train._boosting import Destination
from raygo.train._checkpoint import Checkpoint

try:
    from keras.callbacks import Callback
except ImportError as error:
    raise ImportError("raygo's Keras integration needs the package keras or tensorflow: pip install tensorflow") from error

# Hooks that keras calls with logs, without "on_".
_HOOKS = ("epoch_begin", "epoch_end", "train_begin", "train_end", "test_begin", "test_end", "predict_begin", "predict_end", "train_batch_begin",
          "train_batch_end", "test_batch_begin", "test_batch_end", "predict_batch_begin", "predict_batch_end")


class ReportCallback(Callback):  # type: ignore[misc]
    """Reports to `_destination`.

    Parameters
    ----------
    checkpoint_on : str or list of str
        At which of Keras's hooks a report has a checkpoint, as "epoch_end".
    report_metrics_on : str or list of str
        At which there is a report.
    metrics : str, list of str or dict, optional
        Which of Keras's logs; a dict has the name to report each under.  All by default.
    """

    MODEL_FILENAME = "model.keras"
    _destination: Destination = Destination()

    def __init__(self, checkpoint_on: str | list[str] = "epoch_end", report_metrics_on: str | list[str] = "epoch_end",
                 metrics: str | list[str] | dict[str, str] | None = None) -> None:
        super().__init__()
        self._checkpoint_on = _hooks(checkpoint_on, "checkpoint_on")
        self._report_on = _hooks(report_metrics_on, "report_metrics_on")
        names = [metrics] if isinstance(metrics, str) else metrics
        self._metrics = names if isinstance(names, dict) or names is None else {name: name for name in names}

    def _at(self, hook: str, logs: dict[str, Any] | None) -> None:
        if hook not in self._report_on and hook not in self._checkpoint_on:
            return
        logs = {name: float(value) if hasattr(value, "__float__") else value for name, value in (logs or {}).items()}
        if self._metrics is None:
            said = logs
        else:
            absent = sorted(set(self._metrics.values()) - set(logs))
            if absent:
                raise KeyError(f"Keras has no metric {', '.join(absent)} at {hook}; it has {', '.join(sorted(logs)) or 'none'}")
            said = {name: logs[source] for name, source in self._metrics.items()}
        if hook not in self._checkpoint_on:
            self._destination.report(said)
            return
        with tempfile.TemporaryDirectory(prefix="keras-checkpoint-") as folder:
            # Every worker saves: values that are spread over the workers are gathered by all of them.
            self.model.save(os.path.join(folder, self.MODEL_FILENAME))
            self._destination.report(said, Checkpoint.from_directory(folder) if self._destination.saves() else None)


def _hooks(given: str | list[str], what: str) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    unknown = sorted(set(names) - set(_HOOKS))
    if unknown:
        raise ValueError(f"{what} names {', '.join(unknown)}; there are {', '.join(_HOOKS)}")
    return names


def _hook(name: str) -> Any:
    if name.startswith("epoch") or "batch" in name:
        def numbered(self: ReportCallback, number: int, logs: dict[str, Any] | None = None) -> None:
            self._at(name, logs)

        return numbered

    def plain(self: ReportCallback, logs: dict[str, Any] | None = None) -> None:
        self._at(name, logs)

    return plain


for _name in _HOOKS:
    setattr(ReportCallback, f"on_{_name}", _hook(_name))
