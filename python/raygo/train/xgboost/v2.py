"""The trainer under the name that some scripts use."""
from raygo.train.xgboost.xgboost_trainer import XGBoostTrainer

__all__ = ["XGBoostTrainer"]
