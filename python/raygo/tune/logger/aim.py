"""Aim keeps track of trials."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raygo.air.integrations._common import SentLogger, numbers, parameters
from raygo.tune.logger.logger import plain

if TYPE_CHECKING:
    from types import ModuleType

    from raygo.tune.experiment import Trial

__all__ = ["AimLoggerCallback"]

# What a report's values must be to be tracked.
VALID_SUMMARY_TYPES = (int, float)


def _aim() -> ModuleType:
    try:
        import aim
    except ImportError as error:
        raise ImportError("raygo's Aim integration needs the package aim: pip install aim") from error
    return aim  # type: ignore[no-any-return]


class AimLoggerCallback(SentLogger):
    """Each trial becomes a run of Aim, each report a step.

    Parameters
    ----------
    repo : str, optional
        Aim's repository; the experiment's folder by default.
    experiment_name : str, optional
        The experiment; its folder's name by default.
    metrics : list of str, optional
        Which are tracked; all by default.
    **aim_run_kwargs
        Passed to ``aim.Run``.

    Examples
    --------
    >>> run = raygo.tune.RunConfig(callbacks=[AimLoggerCallback(repo="/data/aim")])     # doctest: +SKIP
    """

    _SERVICE = "Aim"
    _NO_METRICS = ("config", "pid", "date", "done", "node_ip", "hostname", "timestamp", "trial_id")

    def __init__(self, repo: str | None = None, experiment_name: str | None = None, metrics: list[str] | None = None, **aim_run_kwargs: Any) -> None:
        super().__init__()
        _aim()
        if metrics is not None and not isinstance(metrics, list):
            raise ValueError(f"AimLoggerCallback: metrics is {metrics!r}: give a list of names")
        self._repo = repo
        self._experiment_name = experiment_name
        self._metrics = metrics
        self._run_kwargs = aim_run_kwargs
        self._runs: dict[str, Any] = {}       # by trial; the sender's thread alone changes it

    def log_trial_start(self, trial: Trial) -> None:
        """A new run."""
        repo = self._repo or getattr(trial, "local_experiment_path", None)
        name = self._experiment_name or getattr(trial, "experiment_dir_name", None)
        self._send(self._start, trial.trial_id, str(trial), repo, name, trial.local_path, parameters(trial.config))

    def _start(self, trial_id: str, name: str, repo: str | None, experiment: str | None, folder: str | None, config: dict[str, Any]) -> None:
        if trial_id in self._runs:
            return       # the trial goes on
        run = _aim().Run(repo=repo, experiment=experiment, **self._run_kwargs)
        run.name = name
        run["trial_id"] = trial_id
        run["trial_log_dir"] = folder
        run["hparams"] = {key: value if isinstance(value, (str, int, float, bool, type(None))) else plain(value) for key, value in config.items()}
        self._runs[trial_id] = run

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A step."""
        found = numbers(result, self._NO_METRICS)
        if self._metrics is not None:
            found = {key: value for key, value in found.items() if key in self._metrics}
        self._send(self._result, trial.trial_id, found, int(result.get("timesteps_total") or result.get("training_iteration", iteration)))

    def _result(self, trial_id: str, metrics: dict[str, float], step: int) -> None:
        run = self._runs.get(trial_id)
        if run is not None:
            for name, value in metrics.items():
                run.track(value, name=name, step=step, context={"tune": True})

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The run is over."""
        self._send(self._end, trial.trial_id)

    def _end(self, trial_id: str) -> None:
        run = self._runs.pop(trial_id, None)
        if run is not None:
            run.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_runs": {}}
