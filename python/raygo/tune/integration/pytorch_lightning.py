"""Trials that run PyTorch Lightning report to the search."""
from __future__ import annotations

import logging
import os
import tempfile
from typing import TYPE_CHECKING, Any

from raygo.train import Checkpoint
from raygo.train.lightning._package import import_lightning

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    pl = import_lightning()

__all__ = ["TuneCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]

log = logging.getLogger("raygo.tune")

_HOOKS = sorted(name for name in dir(pl.Callback) if name.startswith("on_"))


class TuneCallback(pl.Callback):  # type: ignore[misc]
    """Does something at the hooks that `on` names; subclasses have `_handle`.

    Parameters
    ----------
    on : str or list of str
        Lightning's hooks without "on_", as "validation_end".
    """

    def __init__(self, on: str | list[str] = "validation_end") -> None:
        super().__init__()
        self._on = [on] if isinstance(on, str) else list(on)
        known = [name[len("on_"):] for name in _HOOKS]
        unknown = sorted(set(self._on) - set(known))
        if unknown:
            raise ValueError(f"{type(self).__name__}: Lightning has no hook {', '.join(unknown)}; on is one of {', '.join(known)}")

    def _handle(self, trainer: pl.Trainer, pl_module: pl.LightningModule | None) -> None:
        raise NotImplementedError


def _hook(name: str) -> Any:
    def call(self: TuneCallback, trainer: pl.Trainer, *args: Any, pl_module: Any = None, **kwargs: Any) -> None:
        if name[len("on_"):] in self._on:
            self._handle(trainer, pl_module)

    call.__name__ = name
    call.__doc__ = "Lightning calls it."
    return call


for _name in _HOOKS:
    setattr(TuneCallback, _name, _hook(_name))


class TuneReportCallback(TuneCallback):
    """Reports logged metrics to the search.

    Parameters
    ----------
    metrics : str, list of str or dict, optional
        Which; a dict has the name to report each under.  All by default.
    on : str or list of str
        When; see `TuneCallback`.

    Examples
    --------
    >>> pl.Trainer(callbacks=[TuneReportCallback({"loss": "val_loss"}, on="validation_end")])     # doctest: +SKIP
    """

    def __init__(self, metrics: str | list[str] | dict[str, str] | None = None, on: str | list[str] = "validation_end") -> None:
        super().__init__(on=on)
        names = [metrics] if isinstance(metrics, str) else metrics
        self._metrics = names if isinstance(names, dict) or names is None else {name: name for name in names}
        self._missed: set[str] = set()

    def _chosen(self, trainer: pl.Trainer) -> dict[str, Any] | None:
        if trainer.sanity_checking:
            return None       # before training has begun
        logged = {name: value.item() if hasattr(value, "item") else value for name, value in trainer.callback_metrics.items()}
        if self._metrics is None:
            return logged
        said = {}
        for name, source in self._metrics.items():
            if source in logged:
                said[name] = logged[source]
            elif source not in self._missed:
                self._missed.add(source)
                log.warning("Metric %s does not exist in trainer.callback_metrics, which has %s: it is not reported", source, ", ".join(sorted(logged)))
        return said

    def _handle(self, trainer: pl.Trainer, pl_module: pl.LightningModule | None) -> None:
        said = self._chosen(trainer)
        if said is not None:
            from raygo import tune

            tune.report(said)


class TuneReportCheckpointCallback(TuneReportCallback):
    """Reports logged metrics and a checkpoint to the search.

    Parameters
    ----------
    metrics, on
        As for `TuneReportCallback`.
    filename : str
        Lightning's file in the checkpoint.
    save_checkpoints : bool
        False: metrics only.
    """

    def __init__(self, metrics: str | list[str] | dict[str, str] | None = None, filename: str = "checkpoint", save_checkpoints: bool = True,
                 on: str | list[str] = "validation_end") -> None:
        super().__init__(metrics, on)
        self._filename = filename
        self._save = save_checkpoints

    def _handle(self, trainer: pl.Trainer, pl_module: pl.LightningModule | None) -> None:
        if not self._save:
            super()._handle(trainer, pl_module)
            return
        said = self._chosen(trainer)
        if said is None:
            return
        from raygo import tune

        with tempfile.TemporaryDirectory(prefix="lightning-checkpoint-") as folder:
            trainer.save_checkpoint(os.path.join(folder, self._filename), weights_only=False)
            tune.report(said, checkpoint=Checkpoint.from_directory(folder))
