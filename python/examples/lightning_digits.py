"""Trains a Lightning module on scikit-learn's digits with two workers.

Needs raygo[train], scikit-learn and pytorch-lightning (or lightning: change the import).
"""
from __future__ import annotations

import os
import tempfile

import raygo
import raygo.train
from raygo.train import RunConfig, ScalingConfig
from raygo.train.torch import TorchTrainer


def train_loop(config: dict) -> None:
    """What each worker runs: Lightning as anywhere else, but for the strategy, the environment and the callback."""
    import pytorch_lightning as pl
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, TensorDataset

    from raygo.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer

    class Digits(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

        def training_step(self, batch, _):
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def validation_step(self, batch, _):
            self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean(), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=config["lr"])

    pl.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.as_tensor(images / 16, dtype=torch.float32), torch.as_tensor(labels))
    train, test = torch.utils.data.random_split(data, [1437, 360])
    trainer = pl.Trainer(max_epochs=config["epochs"], accelerator="cpu", strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()],
                         callbacks=[RayTrainReportCallback()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False)
    prepare_trainer(trainer).fit(Digits(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, batch_size=64))


def main() -> None:
    """Train, and say how well."""
    raygo.init(num_cpus=max(2, os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="raygo-lightning-") as folder:
        result = TorchTrainer(train_loop, train_loop_config={"lr": 5e-3, "epochs": 6}, scaling_config=ScalingConfig(num_workers=2),
                              run_config=RunConfig(name="lightning", storage_path=folder)).fit()
        assert result.metrics is not None and result.checkpoint is not None
        print(result.metrics_dataframe[["epoch", "step", "loss", "accuracy"]].to_string(index=False))
        print(f"Lightning's checkpoint is {os.path.join(result.checkpoint.path, 'checkpoint.ckpt')}")
        accuracy = result.metrics["accuracy"]
    raygo.shutdown()
    if accuracy < 0.9:
        raise SystemExit(f"an accuracy of {accuracy:.1%} is less than it should be")


if __name__ == "__main__":
    main()
