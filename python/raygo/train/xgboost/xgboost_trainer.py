"""Data-parallel training with XGBoost."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xgboost

from raygo.train._boosting import BoostingTrainer, columns, worker_cpus
from raygo.train._checkpoint import Checkpoint
from raygo.train._settings import RunConfig, ScalingConfig
from raygo.train.xgboost._xgboost_utils import RayTrainReportCallback
from raygo.train.xgboost.config import XGBoostConfig

__all__ = ["XGBoostTrainer"]


class XGBoostTrainer(BoostingTrainer):
    """Trains one XGBoost model on the rows of several workers.

    Either `train_loop_per_worker` calls ``xgboost.train`` on its part of the rows (`raygo.train.get_dataset_shard`), with
    `RayTrainReportCallback`; or `label_column` and `params` say all.

    Parameters
    ----------
    train_loop_per_worker : callable, optional
        Takes the config, or nothing.
    train_loop_config : dict, optional
        The config.
    xgboost_config : XGBoostConfig, optional
        How the workers are joined.
    label_column : str, optional
        The column of the datasets that is predicted from all others.
    params : dict, optional
        XGBoost's params.
    num_boost_round : int, optional
        Rounds; 10 by default.
    datasets : dict, optional
        "train" is split over the workers; the model is evaluated on all of them, under their names.
    scaling_config, run_config, dataset_config, metadata, resume_from_checkpoint
        As for `raygo.train.DataParallelTrainer`.
    **train_kwargs
        Passed to ``xgboost.train``.

    Examples
    --------
    >>> trainer = XGBoostTrainer(label_column="target", params={"objective": "binary:logistic"}, datasets={"train": dataset},   # doctest: +SKIP
    ...                          scaling_config=ScalingConfig(num_workers=2))
    >>> booster = XGBoostTrainer.get_model(trainer.fit().checkpoint)                                                            # doctest: +SKIP
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any] | None = None, *, train_loop_config: dict[str, Any] | None = None,
                 xgboost_config: XGBoostConfig | None = None, scaling_config: ScalingConfig | None = None, run_config: RunConfig | None = None,
                 datasets: dict[str, Any] | None = None, dataset_config: Any = None, validation_config: Any = None,
                 metadata: dict[str, Any] | None = None, resume_from_checkpoint: Checkpoint | None = None, label_column: str | None = None,
                 params: dict[str, Any] | None = None, num_boost_round: int | None = None, **train_kwargs: Any) -> None:
        super().__init__(_train, 10, train_loop_per_worker, label_column=label_column, params=params, num_boost_round=num_boost_round,
                         train_kwargs=train_kwargs, validation_config=validation_config, train_loop_config=train_loop_config,
                         backend_config=xgboost_config or XGBoostConfig(), scaling_config=scaling_config, dataset_config=dataset_config,
                         run_config=run_config, datasets=datasets, metadata=metadata, resume_from_checkpoint=resume_from_checkpoint)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> xgboost.Booster:
        """The model of a checkpoint of such a run."""
        return RayTrainReportCallback.get_model(checkpoint)


def _train(label_column: str, params: dict[str, Any], rounds: int, others: list[str], settings: dict[str, Any], train_kwargs: dict[str, Any]) -> None:
    """What each worker runs where the user has no function."""
    import raygo.train

    def matrix(name: str) -> xgboost.DMatrix:
        features, labels = columns(raygo.train.get_dataset_shard(name), label_column, name)
        return xgboost.DMatrix(features, labels, enable_categorical=True)

    start = raygo.train.get_checkpoint()
    model = RayTrainReportCallback.get_model(start) if start is not None else None
    left = rounds - (model.num_boosted_rounds() if model is not None else 0)
    evals = [(matrix(name), name) for name in ["train", *others]]
    callbacks = [*train_kwargs.pop("callbacks", []), RayTrainReportCallback(**settings)]
    xgboost.train({"nthread": worker_cpus(), **params}, evals[0][0], num_boost_round=left, evals=evals, xgb_model=model, callbacks=callbacks,
                  verbose_eval=train_kwargs.pop("verbose_eval", False), **train_kwargs)
