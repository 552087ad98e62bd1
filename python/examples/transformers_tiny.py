"""Trains a tiny BERT, made on the spot, with transformers.Trainer on two workers; its batches come from raygo.data.

Needs raygo[train,data], transformers and accelerate.  Nothing is downloaded.
"""
from __future__ import annotations

import os
import tempfile

import numpy as np

import raygo
import raygo.data
import raygo.train
from raygo.train import RunConfig, ScalingConfig
from raygo.train.torch import TorchTrainer


def sentences(number: int) -> raygo.data.Dataset:
    """Tokens whose label says whether the first one is 7."""
    random = np.random.default_rng(0)
    tokens = random.integers(8, 50, (number, 8))
    labels = random.integers(0, 2, number)
    tokens[labels == 1, 0] = 7
    return raygo.data.from_items([{"input_ids": row, "labels": label} for row, label in zip(tokens, labels.tolist(), strict=True)])


def train_loop(config: dict) -> None:
    """What each worker runs."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from raygo.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                                     intermediate_size=32, max_position_embeddings=16))
    settings = TrainingArguments(output_dir=config["out"], max_steps=config["steps"], learning_rate=5e-3, save_strategy="steps", save_steps=20,
                                 logging_steps=20, report_to="none", use_cpu=True, disable_tqdm=True)
    shard = raygo.train.get_dataset_shard("train")
    trainer = Trainer(model=model, args=settings, train_dataset=shard.iter_torch_batches(batch_size=16, local_shuffle_buffer_size=64))
    trainer.add_callback(RayTrainReportCallback())
    prepare_trainer(trainer).train()


def main() -> None:
    """Train, and read the model back."""
    raygo.init(num_cpus=max(2, os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="raygo-transformers-") as folder:
        result = TorchTrainer(train_loop, train_loop_config={"out": os.path.join(folder, "out"), "steps": 60}, datasets={"train": sentences(320)},
                              scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(name="bert", storage_path=folder)).fit()
        assert result.metrics is not None and result.checkpoint is not None
        from transformers import BertForSequenceClassification

        with result.checkpoint.as_directory() as files:
            model = BertForSequenceClassification.from_pretrained(os.path.join(files, "checkpoint"))
        print(f"after {result.metrics['step']} steps the loss is {result.metrics['loss']:.3f}; read back: {model.num_parameters():,} parameters")
        loss = result.metrics["loss"]
    raygo.shutdown()
    if loss > 0.4:
        raise SystemExit("that is more than it should be")


if __name__ == "__main__":
    main()
