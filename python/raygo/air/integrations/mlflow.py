"""MLflow keeps track of trials: a callback in the driver, or mlflow itself in the trial."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from raygo.air.integrations._common import SentLogger, identity, numbers, parameters, rank_zero

if TYPE_CHECKING:
    from types import ModuleType

    from raygo.tune.experiment import Trial

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]

# MLflow takes that many at once.
_BATCH = 100


def _mlflow() -> ModuleType:
    try:
        import mlflow
    except ImportError as error:
        raise ImportError("raygo's MLflow integration needs the package mlflow: pip install mlflow (or mlflow-skinny)") from error
    return mlflow  # type: ignore[no-any-return]


class MLflowLoggerCallback(SentLogger):
    """Each trial becomes a run of MLflow, each report a step of its metrics.

    Reports are sent by a thread of their own: a server that is slow or away delays no trial.

    Parameters
    ----------
    tracking_uri : str, optional
        Where runs are kept; MLflow's own default otherwise.
    registry_uri : str, optional
        The model registry.
    experiment_name : str, optional
        The experiment; ``MLFLOW_EXPERIMENT_NAME`` or the run's name by default.
    tags : dict, optional
        Tags of every run.
    tracking_token : str, optional
        The token for the tracking server.
    save_artifact : bool
        Keep the files of the trial's folder as artifacts at its end.
    log_params_on_trial_end : bool
        Write the config at the end of the trial, not at its start.

    Examples
    --------
    >>> run = raygo.tune.RunConfig(callbacks=[MLflowLoggerCallback(experiment_name="digits")])     # doctest: +SKIP
    """

    _SERVICE = "MLflow"

    def __init__(self, tracking_uri: str | None = None, *, registry_uri: str | None = None, experiment_name: str | None = None,
                 tags: dict[str, Any] | None = None, tracking_token: str | None = None, save_artifact: bool = False,
                 log_params_on_trial_end: bool = False) -> None:
        super().__init__()
        self.tracking_uri = tracking_uri
        self.registry_uri = registry_uri
        self.experiment_name = experiment_name
        self.tags = tags
        self.tracking_token = tracking_token
        self.should_save_artifact = save_artifact
        self.log_params_on_trial_end = log_params_on_trial_end
        self._runs: dict[str, str] = {}       # by trial; the sender's thread alone changes it
        self._client_: Any = None
        self._experiment_id: str | None = None
        _mlflow()

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Before the first trial."""
        if self.tracking_token is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self.tracking_token

    def _client(self, trial_experiment: str | None) -> Any:
        if self._client_ is None:
            from mlflow.tracking import MlflowClient

            client = MlflowClient(tracking_uri=self.tracking_uri, registry_uri=self.registry_uri)
            name = self.experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or trial_experiment or "Default"
            self._experiment_id = _experiment(client, name, None)
            self._client_ = client
        return self._client_

    def log_trial_start(self, trial: Trial) -> None:
        """A new run."""
        self._send(self._start, trial.trial_id, str(trial), getattr(trial, "experiment_dir_name", None), parameters(trial.config))

    def _start(self, trial_id: str, name: str, experiment: str | None, config: dict[str, Any]) -> None:
        client = self._client(experiment)
        if trial_id in self._runs:
            return       # the trial goes on
        tags = {**(self.tags or {}), "trial_name": name, "mlflow.runName": name}
        self._runs[trial_id] = client.create_run(experiment_id=self._experiment_id, tags=tags).info.run_id
        if not self.log_params_on_trial_end:
            self._params(trial_id, config)

    def _params(self, trial_id: str, config: dict[str, Any]) -> None:
        from mlflow.entities import Param

        self._in_batches(trial_id, "params", [Param(key, str(value)) for key, value in config.items()])

    def _in_batches(self, trial_id: str, what: str, entities: list[Any]) -> None:
        for start in range(0, len(entities), _BATCH):
            self._client_.log_batch(self._runs[trial_id], **{what: entities[start:start + _BATCH]})

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A step."""
        step = result.get("timesteps_total") or result.get("training_iteration") or iteration
        self._send(self._metrics, trial.trial_id, numbers(result), int(step), int(result.get("timestamp", 0)) * 1000)

    def _metrics(self, trial_id: str, metrics: dict[str, float], step: int, milliseconds: int) -> None:
        from mlflow.entities import Metric

        if trial_id in self._runs:
            self._in_batches(trial_id, "metrics", [Metric(key, value, milliseconds, step) for key, value in metrics.items()])

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The run is over."""
        self._send(self._end, trial.trial_id, trial.local_path, parameters(trial.config), failed)

    def _end(self, trial_id: str, folder: str | None, config: dict[str, Any], failed: bool) -> None:
        run = self._runs.get(trial_id)
        if run is None:
            return
        try:
            if self.log_params_on_trial_end:
                self._params(trial_id, config)
            if self.should_save_artifact and folder is not None and os.path.isdir(folder):
                self._client_.log_artifacts(run, local_dir=folder)
        finally:
            self._client_.set_terminated(run, status="FAILED" if failed else "FINISHED")

    def get_state(self) -> dict[str, Any] | None:
        """The runs, for a restored search."""
        return {"runs": dict(self._runs)} if self._runs else None

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up the runs."""
        self._runs = dict(state["runs"])

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_client_": None, "_experiment_id": None}


def _experiment(client: Any, name: str, artifact_location: str | None) -> str:
    """The id of an experiment, which is made if it is not there."""
    found = client.get_experiment_by_name(name)
    if found is None:
        from mlflow.exceptions import MlflowException

        try:
            return str(client.create_experiment(name, artifact_location=artifact_location))
        except MlflowException:
            found = client.get_experiment_by_name(name)       # another trial was faster
            if found is None:
                raise
    return str(found.experiment_id)


class _Silent:
    """mlflow on ranks that do not log: takes every call."""

    def __getattr__(self, name: str) -> _Silent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def setup_mlflow(config: dict[str, Any] | None = None, tracking_uri: str | None = None, registry_uri: str | None = None,
                 experiment_id: str | None = None, experiment_name: str | None = None, tracking_token: str | None = None,
                 artifact_location: str | None = None, run_name: str | None = None, create_experiment_if_not_exists: bool = False,
                 tags: dict[str, Any] | None = None, rank_zero_only: bool = True) -> Any:
    """Start a run of MLflow in a trial or a training worker.

    Parameters
    ----------
    config : dict, optional
        Parameters of the run.
    tracking_uri, registry_uri, tracking_token : str, optional
        Where runs are kept.
    experiment_id, experiment_name : str, optional
        The experiment; that of ``MLFLOW_EXPERIMENT_NAME`` or raygo's experiment by default.
    artifact_location : str, optional
        Where the artifacts of an experiment that is made are kept.
    run_name : str, optional
        The run's name; the trial's by default.
    create_experiment_if_not_exists : bool
        Make the experiment, rather than refuse a name that is not there.
    tags : dict, optional
        Tags of the run.
    rank_zero_only : bool
        Only the first worker logs; on the others what is returned takes every call and does nothing.

    Returns
    -------
    module
        mlflow.

    Examples
    --------
    >>> mlflow = setup_mlflow(config, experiment_name="digits", create_experiment_if_not_exists=True)     # doctest: +SKIP
    >>> mlflow.log_metric("loss", 0.5)                                                                    # doctest: +SKIP
    """
    mlflow = _mlflow()
    if rank_zero_only and not rank_zero():
        return _Silent()
    trial_id, trial_name, experiment = identity()
    if tracking_token is not None:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri is not None:
        mlflow.set_registry_uri(registry_uri)
    if experiment_id is None:
        name = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or experiment
        if name is None:
            raise ValueError("setup_mlflow: give experiment_name or experiment_id")
        client = mlflow.tracking.MlflowClient()
        if not create_experiment_if_not_exists and client.get_experiment_by_name(name) is None:
            raise ValueError(f"setup_mlflow: there is no experiment {name!r} at {mlflow.get_tracking_uri()}: make it, or say "
                             "create_experiment_if_not_exists=True")
        experiment_id = _experiment(client, name, artifact_location)
    mlflow.set_experiment(experiment_id=experiment_id)
    own = {"trial_id": trial_id, "trial_name": trial_name} if trial_id is not None else {}
    mlflow.start_run(run_name=run_name or trial_name, tags={**own, **(tags or {})})
    if config:
        mlflow.log_params(parameters(config))
    return mlflow
