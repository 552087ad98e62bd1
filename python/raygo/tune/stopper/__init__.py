"""When to stop, beyond limits of metrics."""
from raygo.tune.stopper.experiment_plateau import ExperimentPlateauStopper
from raygo.tune.stopper.function_stopper import FunctionStopper
from raygo.tune.stopper.maximum_iteration import MaximumIterationStopper
from raygo.tune.stopper.noop import NoopStopper
from raygo.tune.stopper.stopper import CombinedStopper, Stopper
from raygo.tune.stopper.timeout import TimeoutStopper
from raygo.tune.stopper.trial_plateau import TrialPlateauStopper

__all__ = ["CombinedStopper", "ExperimentPlateauStopper", "FunctionStopper", "MaximumIterationStopper", "NoopStopper", "Stopper",
           "TimeoutStopper", "TrialPlateauStopper"]
