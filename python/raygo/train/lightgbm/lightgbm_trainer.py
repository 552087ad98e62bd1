"""Data-parallel training with LightGBM."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm

from raygo.train._boosting import BoostingTrainer, columns, worker_cpus
from raygo.train._checkpoint import Checkpoint
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.lightgbm._lightgbm_utils import RayTrainReportCallback, normalize_pandas_for_lightgbm
from raygo.train.lightgbm.config import LightGBMConfig, get_network_params

__all__ = ["LightGBMTrainer"]


class LightGBMTrainer(BoostingTrainer):
    """Trains one LightGBM model on the rows of several workers.

    Either `train_loop_per_worker` calls ``lightgbm.train`` on its part of the rows (`raygo.train.get_dataset_shard`), with the params of
    `get_network_params` and `RayTrainReportCallback`; or `label_column` and `params` say all.

    Parameters
    ----------
    train_loop_per_worker : callable, optional
        Takes the config, or nothing.
    train_loop_config : dict, optional
        The config.
    lightgbm_config : LightGBMConfig, optional
        How the workers are joined.
    label_column : str, optional
        The column of the datasets that is predicted from all others.
    params : dict, optional
        LightGBM's params; "tree_learner" is "data_parallel" by default.
    num_boost_round : int, optional
        Iterations; 100 by default.
    datasets : dict, optional
        "train" is split over the workers; the model is evaluated on all of them, under their names.
    scaling_config, run_config, dataset_config, metadata, resume_from_checkpoint
        As for `raygo.train.DataParallelTrainer`.
    **train_kwargs
        Passed to ``lightgbm.train``.

    Examples
    --------
    >>> trainer = LightGBMTrainer(label_column="target", params={"objective": "binary"}, datasets={"train": dataset},   # doctest: +SKIP
    ...                           scaling_config=ScalingConfig(num_workers=2))
    >>> booster = LightGBMTrainer.get_model(trainer.fit().checkpoint)                                                   # doctest: +SKIP
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any] | None = None, *, train_loop_config: dict[str, Any] | None = None,
                 lightgbm_config: LightGBMConfig | None = None, scaling_config: ScalingConfig | None = None, run_config: RunConfig | None = None,
                 datasets: dict[str, Any] | None = None, dataset_config: Any = None, validation_config: Any = None,
                 metadata: dict[str, Any] | None = None, resume_from_checkpoint: Checkpoint | None = None, label_column: str | None = None,
                 params: dict[str, Any] | None = None, num_boost_round: int | None = None, **train_kwargs: Any) -> None:
        super().__init__(_train, 100, train_loop_per_worker, label_column=label_column, params=params, num_boost_round=num_boost_round,
                         train_kwargs=train_kwargs, validation_config=validation_config, train_loop_config=train_loop_config,
                         backend_config=lightgbm_config or LightGBMConfig(), scaling_config=scaling_config, dataset_config=dataset_config,
                         run_config=run_config, datasets=datasets, metadata=metadata, resume_from_checkpoint=resume_from_checkpoint)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> lightgbm.Booster:
        """The model of a checkpoint of such a run."""
        return RayTrainReportCallback.get_model(checkpoint)


def _train(label_column: str, params: dict[str, Any], rounds: int, others: list[str], settings: dict[str, Any], train_kwargs: dict[str, Any]) -> None:
    """What each worker runs where the user has no function."""
    import raygo.train

    sets: list[lightgbm.Dataset] = []
    for name in ["train", *others]:
        features, labels = columns(raygo.train.get_dataset_shard(name), label_column, name)
        sets.append(lightgbm.Dataset(normalize_pandas_for_lightgbm(features), labels, reference=sets[0] if sets else None))
    start = raygo.train.get_checkpoint()
    model = RayTrainReportCallback.get_model(start) if start is not None else None
    left = rounds - (model.current_iteration() if model is not None else 0)
    whole: dict[str, Any] = {"num_threads": worker_cpus(), "tree_learner": "data_parallel", "pre_partition": True, **params}
    if raygo.train.get_context().get_world_size() > 1:
        whole.update(get_network_params())
    callbacks = [*train_kwargs.pop("callbacks", []), RayTrainReportCallback(**settings)]
    lightgbm.train(whole, sets[0], num_boost_round=left, valid_sets=sets, valid_names=["train", *others], init_model=model, callbacks=callbacks,
                   **train_kwargs)
