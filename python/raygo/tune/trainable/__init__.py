"""What is tried: functions and classes."""
from raygo.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from raygo.tune.trainable.trainable import Trainable
from raygo.tune.trainable.util import with_parameters, with_resources

__all__ = ["FunctionTrainable", "Trainable", "with_parameters", "with_resources", "wrap_function"]
