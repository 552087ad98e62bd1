"""XGBoost on several workers, which agree on every split through XGBoost's own collective."""
try:
    import xgboost as _xgboost  # noqa: F401
except ImportError as error:
    raise ImportError("raygo.train.xgboost needs the package xgboost: pip install xgboost (or xgboost-cpu)") from error

from raygo.train.xgboost._xgboost_utils import RayTrainReportCallback
from raygo.train.xgboost.config import XGBoostConfig
from raygo.train.xgboost.xgboost_checkpoint import XGBoostCheckpoint
from raygo.train.xgboost.xgboost_trainer import XGBoostTrainer

__all__ = ["RayTrainReportCallback", "XGBoostCheckpoint", "XGBoostConfig", "XGBoostTrainer"]
