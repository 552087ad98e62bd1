"""transformers.Trainer in a training function: it joins the workers' process group and reports to the run."""
from raygo.train.huggingface.transformers._transformers_utils import RayTrainReportCallback, prepare_trainer

__all__ = ["RayTrainReportCallback", "prepare_trainer"]
