"""What `raygo.train.xgboost` offers, under the paths of Ray's newer trainers."""
from raygo.train.xgboost import XGBoostConfig

__all__ = ["XGBoostConfig"]
