"""Comet keeps track of trials."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo.air.integrations._common import SentLogger, numbers, parameters

if TYPE_CHECKING:
    from types import ModuleType

    from raygo.tune.experiment import Trial

__all__ = ["CometLoggerCallback"]


def _comet() -> ModuleType:
    try:
        import comet_ml
    except ImportError as error:
        raise ImportError("raygo's Comet integration needs the package comet_ml: pip install comet-ml") from error
    return comet_ml  # type: ignore[no-any-return]


class CometLoggerCallback(SentLogger):
    """Each trial becomes an experiment of Comet, each report a step.

    Parameters
    ----------
    online : bool
        Send to Comet at once, or write files to be uploaded later.
    tags : list of str, optional
        Tags of every experiment.
    save_checkpoints : bool
        Upload checkpoints.
    **experiment_kwargs
        Passed to ``comet_ml.Experiment`` or ``OfflineExperiment``.

    Examples
    --------
    >>> run = raygo.tune.RunConfig(callbacks=[CometLoggerCallback(online=False, offline_directory="comet")])     # doctest: +SKIP
    """

    _SERVICE = "Comet"
    _OTHER = ("trial_id", "hostname", "node_ip", "date", "experiment_tag")
    _NO_METRICS = ("config", "done", "should_checkpoint", "pid", "timestamp")

    def __init__(self, online: bool = True, tags: list[str] | None = None, save_checkpoints: bool = False, **experiment_kwargs: Any) -> None:
        super().__init__()
        _comet()
        self.online = online
        self.tags = tags
        self.save_checkpoints = save_checkpoints
        self.experiment_kwargs = experiment_kwargs
        self._experiments: dict[str, Any] = {}       # by trial; the sender's thread alone changes it

    def log_trial_start(self, trial: Trial) -> None:
        """A new experiment."""
        self._send(self._start, trial.trial_id, str(trial), parameters(trial.config))

    def _start(self, trial_id: str, name: str, config: dict[str, Any]) -> None:
        if trial_id in self._experiments:
            return       # the trial goes on
        comet = _comet()
        # Several are under way at once, so that none may be the process's own.
        settings = {"auto_output_logging": False, "log_code": False, "log_git_metadata": False, "display_summary_level": 0, **self.experiment_kwargs}
        experiment = (comet.Experiment if self.online else comet.OfflineExperiment)(**settings)
        experiment.set_name(name)
        experiment.add_tags(self.tags or [])
        experiment.log_other("Created from", "raygo")
        experiment.log_parameters(config)
        self._experiments[trial_id] = experiment

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A step."""
        other = {key: result[key] for key in self._OTHER if key in result}
        self._send(self._result, trial.trial_id, numbers(result, self._NO_METRICS), other, int(result.get("training_iteration", iteration)))

    def _result(self, trial_id: str, metrics: dict[str, float], other: dict[str, Any], step: int) -> None:
        experiment = self._experiments.get(trial_id)
        if experiment is not None:
            experiment.log_others(other)
            experiment.log_metrics(metrics, step=step)

    def log_trial_save(self, trial: Trial) -> None:
        """A checkpoint."""
        if self.save_checkpoints and trial.checkpoint is not None:
            self._send(self._save, trial.trial_id, str(trial), trial.checkpoint)

    def _save(self, trial_id: str, name: str, checkpoint: Any) -> None:
        experiment = self._experiments.get(trial_id)
        if experiment is not None:
            with checkpoint.as_directory() as folder:
                experiment.log_asset_folder(folder, log_file_name=True)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The experiment is over."""
        self._send(self._end, trial.trial_id, failed)

    def _end(self, trial_id: str, failed: bool) -> None:
        experiment = self._experiments.pop(trial_id, None)
        if experiment is not None:
            experiment.log_other("status", "failed" if failed else "finished")
            experiment.end()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_experiments": {}}
