"""LightGBM on several workers, which agree on every split through LightGBM's own network."""
try:
    import lightgbm as _lightgbm  # noqa: F401
except ImportError as error:
    raise ImportError("raygo.train.lightgbm needs the package lightgbm: pip install lightgbm") from error

from raygo.train.lightgbm._lightgbm_utils import RayTrainReportCallback, normalize_pandas_for_lightgbm
from raygo.train.lightgbm.config import LightGBMConfig, get_network_params
from raygo.train.lightgbm.lightgbm_checkpoint import LightGBMCheckpoint
from raygo.train.lightgbm.lightgbm_trainer import LightGBMTrainer

__all__ = ["LightGBMCheckpoint", "LightGBMConfig", "LightGBMTrainer", "RayTrainReportCallback", "get_network_params",
           "normalize_pandas_for_lightgbm"]
