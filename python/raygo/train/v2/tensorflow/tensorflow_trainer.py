"""What `raygo.train.tensorflow` offers, under the paths of Ray's newer trainers."""
from raygo.train.tensorflow import TensorflowTrainer

__all__ = ["TensorflowTrainer"]
