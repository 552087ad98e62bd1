"""TensorFlow on several workers: `TF_CONFIG` tells them of each other, for MultiWorkerMirroredStrategy."""
import importlib.util as _util

if _util.find_spec("tensorflow") is None:
    raise ImportError("raygo.train.tensorflow needs the package tensorflow: pip install tensorflow (or tensorflow-cpu)")

from raygo.train.tensorflow.config import TensorflowConfig
from raygo.train.tensorflow.tensorflow_checkpoint import TensorflowCheckpoint
from raygo.train.tensorflow.tensorflow_trainer import TensorflowTrainer
from raygo.train.tensorflow.train_loop_utils import prepare_dataset_shard

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]
