"""The callback that reports, and data of raygo.data in transformers.Trainer."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch.utils.data
from transformers.trainer_callback import TrainerCallback

import raygo.train
from raygo.train import Checkpoint
from raygo.train.context import get_context

if TYPE_CHECKING:
    from transformers import TrainingArguments
    from transformers.trainer import Trainer
    from transformers.trainer_callback import TrainerControl, TrainerState

__all__ = ["RayTrainReportCallback", "prepare_trainer"]


class RayTrainReportCallback(TrainerCallback):  # type: ignore[misc]
    """Reports the logged metrics and the checkpoint whenever transformers.Trainer has saved one.

    What transformers saved is in the folder "checkpoint" of the reported checkpoint, as ``from_pretrained`` reads it.  `save_strategy` says
    when that is; set `eval_strategy` and `logging_strategy` to the same, so that the metrics are there by then.
    """

    CHECKPOINT_NAME = "checkpoint"

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report."""
        metrics: dict[str, Any] = {}
        for entry in state.log_history:
            metrics.update(entry)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.barrier()      # each rank may write a part, and on_save says only that its own is there
        source = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        # The ranks of one machine write into one folder.
        if get_context().get_local_rank() != 0 or not os.path.isdir(source):
            raygo.train.report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix="transformers-checkpoint-") as folder:
            shutil.copytree(source, os.path.join(folder, self.CHECKPOINT_NAME), copy_function=_link)
            raygo.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def _link(source: str, target: str) -> str:
    """The same file under a second name, for as long as it is copied to the storage; a copy where that is not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


class RayTorchIterableDataset(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """The batches of a `raygo.data` iterator as a torch data set."""

    def __init__(self, batches: Any) -> None:
        super().__init__()
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Let a transformers.Trainer take the batches of `get_dataset_shard(...).iter_torch_batches(...)` as its train_dataset or eval_dataset.

    Their rows are this worker's already and come in batches, so that they are neither sharded nor collated again.  Other data sets are left
    to transformers.  It changes the trainer and returns it.
    """
    from raygo.data.iterator import Batches

    kind = type(trainer)

    class RayTransformersTrainer(kind):  # type: ignore[misc, valid-type]
        """A Trainer that knows raygo's batches."""

        def get_train_dataloader(self) -> Any:
            if isinstance(self.train_dataset, Batches):
                return _loader(self.train_dataset)
            return super().get_train_dataloader()

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            chosen = eval_dataset if eval_dataset is not None else self.eval_dataset
            if isinstance(chosen, str):
                chosen = self.eval_dataset[chosen]        # of several, by name
            if isinstance(chosen, Batches):
                return _loader(chosen)
            return super().get_eval_dataloader(eval_dataset)

    trainer.__class__ = RayTransformersTrainer
    return trainer


def _loader(batches: Any) -> Any:
    return torch.utils.data.DataLoader(RayTorchIterableDataset(batches), batch_size=1, collate_fn=_first)


def _first(batch: list[Any]) -> Any:
    return batch[0]
