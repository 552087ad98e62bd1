"""Weights & Biases keeps track of trials: a callback in the driver, or a run in the trial itself.

A run of wandb belongs to a process and may wait for the network, so the callback gives each trial an actor that takes no CPU.  What is
reported is sent to it without waiting.
"""
from __future__ import annotations

import importlib
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import raygo
from raygo.air.integrations._common import identity, rank_zero
from raygo.tune.logger.logger import LoggerCallback, flatten, plain

if TYPE_CHECKING:
    from types import ModuleType

    from raygo.tune.experiment import Trial

__all__ = ["WANDB_ENV_VAR", "WANDB_GROUP_ENV_VAR", "WANDB_MODE_ENV_VAR", "WANDB_POPULATE_RUN_LOCATION_HOOK", "WANDB_PROCESS_RUN_INFO_HOOK",
           "WANDB_PROJECT_ENV_VAR", "WANDB_SETUP_API_KEY_HOOK", "WandbLoggerCallback", "setup_wandb"]

log = logging.getLogger("raygo.tune")

WANDB_ENV_VAR = "WANDB_API_KEY"
WANDB_PROJECT_ENV_VAR = "WANDB_PROJECT_NAME"
WANDB_GROUP_ENV_VAR = "WANDB_GROUP_NAME"
WANDB_MODE_ENV_VAR = "WANDB_MODE"
# Functions, as "module.function", that give the API key; that set project and group; that see each run.
WANDB_SETUP_API_KEY_HOOK = "WANDB_SETUP_API_KEY_HOOK"
WANDB_POPULATE_RUN_LOCATION_HOOK = "WANDB_POPULATE_RUN_LOCATION_HOOK"
WANDB_PROCESS_RUN_INFO_HOOK = "WANDB_PROCESS_RUN_INFO_HOOK"

# Reports that may be on their way to a run; further ones are dropped, and said so.
_ON_THE_WAY = 1000
# How long a checkpoint waits to become an artifact, as it may be deleted afterwards.
_SAVE_S = 60.0
_SAY_AFTER_S = 10.0


def _wandb() -> ModuleType:
    try:
        import wandb
    except ImportError as error:
        raise ImportError("raygo's Weights & Biases integration needs the package wandb: pip install wandb") from error
    return wandb  # type: ignore[no-any-return]


def _hook(variable: str) -> Callable[..., Any] | None:
    name = os.environ.get(variable)
    if not name:
        return None
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _api_key(api_key: str | None, api_key_file: str | None) -> str | None:
    """The key, from where it was given; None where wandb finds one itself or needs none."""
    if api_key_file is not None:
        if api_key is not None:
            raise ValueError("Both WandB `api_key_file` and `api_key` set.")
        with open(os.path.expanduser(api_key_file)) as file:
            api_key = file.readline().strip()
    if api_key is None and WANDB_ENV_VAR not in os.environ and (hook := _hook(WANDB_SETUP_API_KEY_HOOK)) is not None:
        api_key = hook()
    if api_key or os.environ.get(WANDB_ENV_VAR) or os.environ.get(WANDB_MODE_ENV_VAR) in ("offline", "disabled", "dryrun"):
        return api_key
    if _wandb().api.api_key:       # what `wandb login` has left
        return None
    raise ValueError(f"No WandB API key found. Either set the {WANDB_ENV_VAR} environment variable, pass `api_key` or `api_key_file`, log in with "
                     f"`wandb login`, or set {WANDB_MODE_ENV_VAR}=offline.")


class _Run:
    """The actor that holds one run."""

    def __init__(self, environment: dict[str, str], folder: str, settings: dict[str, Any]) -> None:
        os.environ.update(environment)
        os.chdir(folder)
        self._folder = folder
        self._run = _wandb().init(**settings)
        hook = _hook(WANDB_PROCESS_RUN_INFO_HOOK)
        if hook is not None:
            hook(self._run)

    def log(self, metrics: dict[str, Any], config: dict[str, Any]) -> None:
        """A step."""
        self._run.config.update(config, allow_val_change=True)
        self._run.log(metrics)

    def save(self, folder: str, name: str) -> None:
        """A checkpoint becomes an artifact."""
        artifact = _wandb().Artifact(name=name, type="model")
        artifact.add_dir(folder)
        self._run.log_artifact(artifact)

    def finish(self, failed: bool) -> None:
        """The run is over."""
        self._run.finish(exit_code=1 if failed else 0)


class WandbLoggerCallback(LoggerCallback):
    """Each trial becomes a run of Weights & Biases, each report a step.

    Parameters
    ----------
    project : str, optional
        The project; ``WANDB_PROJECT_NAME`` by default.
    group : str, optional
        The group of runs; ``WANDB_GROUP_NAME`` or the experiment's name by default.
    api_key_file, api_key : str, optional
        The key, or a file with it; ``WANDB_API_KEY`` or what ``wandb login`` has left by default.  ``WANDB_MODE=offline`` needs none.
    excludes : list of str, optional
        Metrics and parameters that are left out.
    log_config : bool
        Log the report's "config" too.
    upload_checkpoints, save_checkpoints : bool
        Keep checkpoints as artifacts.
    upload_timeout : int
        How many seconds the end of the experiment waits for runs to finish.
    video_kwargs, image_kwargs : dict, optional
        Taken for compatibility.
    **kwargs
        Passed to ``wandb.init``.

    Examples
    --------
    >>> run = raygo.tune.RunConfig(callbacks=[WandbLoggerCallback(project="digits")])     # doctest: +SKIP
    """

    AUTO_CONFIG_KEYS = ["trial_id", "experiment_tag", "node_ip", "experiment_id", "hostname", "pid", "date"]
    _NO_METRICS = ("done", "should_checkpoint")

    def __init__(self, project: str | None = None, group: str | None = None, api_key_file: str | None = None, api_key: str | None = None,
                 excludes: list[str] | None = None, log_config: bool = False, upload_checkpoints: bool = False, save_checkpoints: bool = False,
                 upload_timeout: int = 1800, video_kwargs: dict[str, Any] | None = None, image_kwargs: dict[str, Any] | None = None,
                 **kwargs: Any) -> None:
        _wandb()
        self.project = project
        self.group = group
        self.api_key_path = api_key_file
        self.api_key = api_key
        self.excludes = excludes or []
        self.log_config = log_config
        self.upload_checkpoints = upload_checkpoints or save_checkpoints
        self.upload_timeout = upload_timeout
        self.video_kwargs = video_kwargs or {}
        self.image_kwargs = image_kwargs or {}
        self.kwargs = kwargs
        self._runs: dict[str, Any] = {}
        self._on_the_way: dict[str, deque[Any]] = {}      # by trial, so that a run that hangs takes no room of others
        self._deaf: set[str] = set()       # trials whose runs took too long for a checkpoint
        self._finishing: list[Any] = []
        self._said = self._dropped = False

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Before the first trial: finds the key, project and group."""
        self.api_key = _api_key(self.api_key, self.api_key_path)
        self.api_key_path = None
        hook = _hook(WANDB_POPULATE_RUN_LOCATION_HOOK)
        if hook is not None:
            hook()
        self.project = self.project or os.environ.get(WANDB_PROJECT_ENV_VAR)
        self.group = self.group or os.environ.get(WANDB_GROUP_ENV_VAR)
        if not self.project:
            raise ValueError(f"Please pass the project name as argument or through the {WANDB_PROJECT_ENV_VAR} environment variable.")

    def log_trial_start(self, trial: Trial) -> None:
        """A new run."""
        if trial.trial_id in self._runs:
            return       # the trial goes on
        config = {key: value for key, value in trial.config.items() if key != "callbacks" and key not in self.excludes}
        settings = {"id": trial.trial_id, "name": str(trial), "resume": False, "project": self.project,
                    "group": self.group or getattr(trial, "experiment_dir_name", None), "config": _clean(config), **self.kwargs}
        settings.setdefault("dir", trial.local_path)
        environment = {key: value for key, value in os.environ.items() if key.startswith("WANDB_")}
        if self.api_key:
            environment[WANDB_ENV_VAR] = self.api_key
        self._runs[trial.trial_id] = raygo.remote(num_cpus=0)(_Run).remote(environment, trial.local_path, settings)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """A step."""
        if trial.trial_id not in self._runs:
            self.log_trial_start(trial)
        metrics: dict[str, Any] = {}
        config: dict[str, Any] = {}
        for key, value in flatten({k: v for k, v in result.items() if k != "config" or self.log_config}).items():
            top = key.split("/")[0]
            if key in self._NO_METRICS or key in self.excludes or top in self.excludes:
                continue
            (config if top in self.AUTO_CONFIG_KEYS else metrics)[key] = _value(value)
        self._log(trial, metrics, config)

    def log_trial_save(self, trial: Trial) -> None:
        """A checkpoint."""
        if self.upload_checkpoints and trial.checkpoint is not None and trial.trial_id in self._runs:
            if trial.trial_id in self._deaf:
                return
            with trial.checkpoint.as_directory() as folder:
                saved = self._runs[trial.trial_id].save.remote(os.path.abspath(folder), f"checkpoint_{trial.trial_id}")
                ready, _ = raygo.wait([saved], timeout=_SAVE_S)
            if ready:
                self._see(saved)
            else:
                self._deaf.add(trial.trial_id)
                log.warning("the run of %s at Weights & Biases has not taken a checkpoint within %g s; its further checkpoints are not uploaded",
                            trial, _SAVE_S)

    def _log(self, trial: Trial, metrics: dict[str, Any], config: dict[str, Any]) -> None:
        sent = self._on_the_way.setdefault(trial.trial_id, deque())
        while sent and raygo.wait([sent[0]], timeout=0)[0]:
            self._see(sent.popleft())
        if len(sent) < _ON_THE_WAY:
            sent.append(self._runs[trial.trial_id].log.remote(metrics, config))
        elif not self._dropped:
            self._dropped = True
            log.warning("the run of %s at Weights & Biases is too slow: %d reports wait for it, and further ones are dropped until there is room",
                        trial, _ON_THE_WAY)

    def _see(self, ref: Any) -> None:
        try:
            raygo.get(ref)
        except Exception:
            if not self._said:
                self._said = True
                log.warning("a run of Weights & Biases failed; training goes on without it", exc_info=True)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The run is over."""
        run = self._runs.pop(trial.trial_id, None)
        if run is not None:
            self._finishing.append((run, run.finish.remote(failed)))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Wait until wandb has all."""
        for run in self._runs.values():
            self._finishing.append((run, run.finish.remote(False)))
        self._runs = {}
        finishing, self._finishing = self._finishing, []
        refs = [ref for _, ref in finishing]
        ready, late = self._finished(refs) if refs else ([], [])
        rest = [ref for sent in self._on_the_way.values() for ref in sent]
        # Of a run that has not finished, what it has not logged it will not log.
        for ref in [*(raygo.wait(rest, num_returns=len(rest), timeout=0)[0] if rest else []), *ready]:
            self._see(ref)
        self._on_the_way.clear()
        if late:
            log.warning("%d runs of Weights & Biases have not finished within upload_timeout=%g s and are ended", len(late), self.upload_timeout)
        for run, _ in finishing:
            raygo.kill(run)

    def _finished(self, refs: list[Any]) -> tuple[list[Any], list[Any]]:
        ready, late = raygo.wait(refs, num_returns=len(refs), timeout=min(_SAY_AFTER_S, self.upload_timeout))
        if late and self.upload_timeout > _SAY_AFTER_S:
            log.warning("waiting for %d runs of Weights & Biases to finish, for %g s at most (WandbLoggerCallback(upload_timeout=...))",
                        len(late), self.upload_timeout)
            ready, late = raygo.wait(refs, num_returns=len(refs), timeout=self.upload_timeout - _SAY_AFTER_S)
        return ready, late

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}, "_on_the_way": {}, "_finishing": []}


def _value(value: Any) -> Any:
    """As wandb takes it: numbers, text, lists and its own types."""
    if isinstance(value, (int, float, str, bool, list, tuple, type(None))) or type(value).__module__.startswith("wandb"):
        return value
    return plain(value)


def _clean(config: Any) -> Any:
    if isinstance(config, dict):
        return {str(key): _clean(value) for key, value in config.items()}
    return _value(config)


def setup_wandb(config: dict[str, Any] | None = None, api_key: str | None = None, api_key_file: str | None = None, rank_zero_only: bool = True,
                **kwargs: Any) -> Any:
    """Start a run of Weights & Biases in a trial or a training worker.

    Parameters
    ----------
    config : dict, optional
        The run's config.
    api_key, api_key_file : str, optional
        The key, or a file with it.
    rank_zero_only : bool
        Only the first worker logs; on the others the run is disabled.
    **kwargs
        Passed to ``wandb.init``; id, name and group are the trial's by default.

    Examples
    --------
    >>> run = setup_wandb(config, project="digits")       # doctest: +SKIP
    >>> run.log({"loss": 0.5})                            # doctest: +SKIP
    """
    wandb = _wandb()
    if rank_zero_only and not rank_zero():
        return wandb.init(mode="disabled")
    trial_id, trial_name, experiment = identity()
    if kwargs.get("mode") not in ("offline", "disabled"):
        key = _api_key(api_key, api_key_file)
        if key:
            os.environ[WANDB_ENV_VAR] = key
    own = {"id": trial_id, "name": trial_name, "group": experiment, "project": os.environ.get(WANDB_PROJECT_ENV_VAR)}
    settings = {**{key: value for key, value in own.items() if value is not None}, **kwargs}
    run = wandb.init(config=_clean(config or {}), **settings)
    hook = _hook(WANDB_PROCESS_RUN_INFO_HOOK)
    if hook is not None:
        hook(run)
    return run
