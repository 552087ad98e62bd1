"""Trains one XGBoost model on the rows of two workers and compares it with one process.

Needs raygo[data], scikit-learn and xgboost (or xgboost-cpu).
"""
from __future__ import annotations

import os
import tempfile

import xgboost
from sklearn.datasets import load_breast_cancer

import raygo
import raygo.data
from raygo.train import RunConfig, ScalingConfig
from raygo.train.xgboost import XGBoostTrainer

PARAMS = {"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "max_depth": 3}
ROUNDS = 15


def main() -> None:
    """Train both ways."""
    frame = load_breast_cancer(as_frame=True).frame.sample(frac=1, random_state=0)
    frame.columns = [name.replace(" ", "_") for name in frame.columns]
    train, test = frame[:450], frame[450:]
    raygo.init(num_cpus=max(2, os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="raygo-xgboost-") as folder:
        result = XGBoostTrainer(label_column="target", params=PARAMS, num_boost_round=ROUNDS, scaling_config=ScalingConfig(num_workers=2),
                                datasets={"train": raygo.data.from_pandas(train), "valid": raygo.data.from_pandas(test)},
                                run_config=RunConfig(name="cancer", storage_path=folder)).fit()
        assert result.metrics is not None and result.checkpoint is not None
        together = XGBoostTrainer.get_model(result.checkpoint)
        print(f"two workers: error {result.metrics['valid-error']:.3f}, log loss {result.metrics['valid-logloss']:.3f} on the test rows")
    raygo.shutdown()
    rows = xgboost.DMatrix(test.drop(columns="target"), test["target"])
    alone = xgboost.train(PARAMS, xgboost.DMatrix(train.drop(columns="target"), train["target"]), ROUNDS)
    apart = float(abs(together.predict(rows) - alone.predict(rows)).mean())
    print(f"their predictions differ from those of one process by {apart:.4f} on average")
    if apart > 0.05:
        raise SystemExit("that is more than it should be")


if __name__ == "__main__":
    main()
