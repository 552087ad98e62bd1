"""What `raygo.train.xgboost` offers, under the paths of Ray's newer trainers."""
from raygo.train.xgboost import XGBoostTrainer

__all__ = ["XGBoostTrainer"]
