"""A trainer as a trial of raygo.tune: the trial's process is the driver of the run, and its reports are the trial's."""
from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

from raygo.train import _session
from raygo.train._callbacks import UserCallback
from raygo.train._checkpoint import Checkpoint
from raygo.train._settings import PlacementGroupFactory, RunConfig, ScalingConfig

if TYPE_CHECKING:
    from raygo.train.base_trainer import BaseTrainer


def merged(trainer: BaseTrainer, config: dict[str, Any]) -> BaseTrainer:
    """The trainer made again with a trial's config: dicts and settings are merged, anything else is replaced."""
    arguments = {**trainer._arguments, "datasets": trainer.datasets or None}
    for name, value in config.items():
        old = arguments.get(name)
        if name == "scaling_config":
            base = old if isinstance(old, ScalingConfig) else trainer.scaling_config
            arguments[name] = value if isinstance(value, ScalingConfig) else dataclasses.replace(base, **value)
        elif isinstance(value, dict) and isinstance(old, dict):
            arguments[name] = {**copy.copy(old), **value}
        else:
            arguments[name] = value
    arguments = {name: value for name, value in arguments.items() if value is not None}
    return type(trainer)(**arguments)


def opened(space: dict[str, Any]) -> dict[str, Any]:
    """A search space with a ScalingConfig that has domains in it as a dict, into which the search looks."""
    if isinstance(space.get("run_config"), RunConfig):
        raise ValueError("param_space has a run_config, which is no parameter of a trial: give it to the Tuner")
    scaling = space.get("scaling_config")
    return {**space, "scaling_config": dict(vars(scaling))} if isinstance(scaling, ScalingConfig) and scaling._has_domains else space


def say_what_does_not_count(trainable: Any) -> None:
    """Warns of what a trainer's own RunConfig has, where the search has one too."""
    own = getattr(trainable, "run_config", None)
    if not isinstance(own, RunConfig):
        return
    usual = RunConfig(callbacks=[callback for callback in own.callbacks or [] if isinstance(callback, UserCallback)] or None)
    lost = [field.name for field in dataclasses.fields(own)
            if field.name != "worker_runtime_env" and not _same(getattr(own, field.name), getattr(usual, field.name))]
    if lost:
        warnings.warn(f"{getattr(trainable, '__name__', type(trainable).__name__)} has a RunConfig, and so has the search, whose counts: "
                      f"{', '.join(lost)} of the trainer's does nothing. Give it to the search.", stacklevel=5)


def tune_callbacks(given: list[Any] | None) -> list[Any]:
    """Those of a search: hooks into a training run are called in its trials."""
    return [callback for callback in given or [] if not isinstance(callback, UserCallback)]


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def resources(trainer: BaseTrainer, config: dict[str, Any]) -> PlacementGroupFactory:
    """What a trial needs: an empty bundle for its own process, and one for each worker; without workers what one would need, for itself."""
    scaling = merged(trainer, config).scaling_config
    head = {key: float(amount) for key, amount in (scaling.trainer_resources or {}).items()}
    if scaling.max_workers == 0:
        head = {**scaling._worker_bundle, **head}
    return PlacementGroupFactory([head, *([scaling._worker_bundle] * scaling.max_workers)], scaling.placement_strategy)


def as_trainable(trainer: BaseTrainer) -> Any:
    """A function for `raygo.tune.Tuner`; its attribute `_trial_resources` gives what a config needs."""

    def train_in_trial(config: dict[str, Any]) -> None:
        run_in_trial(merged(trainer, config))

    train_in_trial.__name__ = train_in_trial.__qualname__ = type(trainer).__name__
    train_in_trial._trial_resources = lambda config: resources(trainer, config)        # type: ignore[attr-defined]
    train_in_trial._trainer = trainer                                                   # type: ignore[attr-defined]
    train_in_trial.run_config = trainer.run_config                                      # type: ignore[attr-defined]
    return train_in_trial


def run_in_trial(trainer: Any) -> None:
    """Trains in a trial's process.  Checkpoints go straight to the trial's folder; the trial only names them."""
    from raygo.util.placement_group import get_current_placement_group

    session = _session.current
    if session is None:
        raise RuntimeError(f"{type(trainer).__name__} was to run in a trial of raygo.tune, but there is none here")
    group = get_current_placement_group()
    placement = None
    if group is not None and group.bundle_count >= trainer.scaling_config.max_workers:
        # The first bundle is the trial's own unless it was empty.
        own = 0 if group.bundle_count == trainer.scaling_config.max_workers else 1
        placement = (group, list(range(own, group.bundle_count)))
    # Name, folders, limits and loggers are the trial's; of the run's settings only what concerns workers and the user's own hooks is left.
    hooks = [callback for callback in trainer.run_config.callbacks or [] if isinstance(callback, UserCallback)]
    trainer.run_config = dataclasses.replace(trainer.run_config, callbacks=hooks, stop=None, verbose=0,
                                             failure_config=None, checkpoint_config=None)

    def forward(metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        session.report(metrics, checkpoint, mode=_session.CheckpointUploadMode.NO_UPLOAD)

    if session.checkpoint is not None:
        trainer.starting_checkpoint = session.checkpoint
    trainer.setup()
    trainer.preprocess_datasets()
    trainer._run(placement=placement, storage=session.storage, on_report=forward).fit()
