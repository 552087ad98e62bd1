"""Trains a small network on pictures in FashionMNIST's file format with DistributedDataParallel, and reads the best model back.

Needs raygo[train] and torchvision.  Without --data, made pictures of the same form are written first, so that nothing is downloaded.
"""
from __future__ import annotations

import argparse
import os
import struct
import tempfile

import numpy as np

import raygo
import raygo.train
import raygo.train.torch
from raygo.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from raygo.train.torch import TorchTrainer


def write_pictures(root: str, train: int = 2000, test: int = 400) -> None:
    """Ten classes of 28 x 28 pictures in the raw IDX form that torchvision reads; each class is bright at a place of its own."""
    raw = os.path.join(root, "FashionMNIST", "raw")
    os.makedirs(raw, exist_ok=True)
    random = np.random.default_rng(0)
    for stem, number in (("train", train), ("t10k", test)):
        labels = random.integers(0, 10, number).astype(np.uint8)
        pictures = random.integers(0, 120, (number, 28, 28)).astype(np.uint8)
        for picture, label in zip(pictures, labels, strict=True):
            row, column = divmod(int(label), 4)
            picture[row * 9:row * 9 + 7, column * 7:column * 7 + 7] += 100
        with open(os.path.join(raw, f"{stem}-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, number, 28, 28) + pictures.tobytes())
        with open(os.path.join(raw, f"{stem}-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 0x801, number) + labels.tobytes())


def network():
    """Two convolutions and a linear layer."""
    import torch

    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 5, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 5, stride=2), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(16 * 16, 10))


def pictures(root: str, train: bool):
    """The data set."""
    from torchvision import datasets, transforms

    return datasets.FashionMNIST(root, train=train, download=False, transform=transforms.ToTensor())


def train_loop(config: dict) -> None:
    """What each worker runs."""
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    loader = raygo.train.torch.prepare_data_loader(DataLoader(pictures(config["root"], True), batch_size=config["batch_size"], shuffle=True))
    model = raygo.train.torch.prepare_model(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        if raygo.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        with tempfile.TemporaryDirectory() as folder:
            if raygo.train.get_context().get_world_rank() == 0:
                torch.save(getattr(model, "module", model).state_dict(), os.path.join(folder, "model.pt"))
            raygo.train.report({"epoch": epoch, "loss": total / len(loader)}, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    """Train, then test the best model."""
    import torch

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", help="a folder with FashionMNIST/raw; made pictures by default")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--epochs", type=int, default=4)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="raygo-fashion-") as folder:
        root = given.data or folder
        if not given.data:
            write_pictures(root)
        raygo.init(num_cpus=max(given.workers, os.cpu_count() or 1))
        result = TorchTrainer(
            train_loop, train_loop_config={"root": root, "batch_size": 32, "lr": 2e-3, "epochs": given.epochs},
            scaling_config=ScalingConfig(num_workers=given.workers),
            run_config=RunConfig(name="fashion", storage_path=os.path.join(folder, "runs"), checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"))).fit()
        best = result.get_best_checkpoint("loss", "min")
        assert best is not None and result.metrics is not None
        model = network()
        with best.as_directory() as files:
            model.load_state_dict(torch.load(os.path.join(files, "model.pt")))
        x, y = (torch.stack([torch.as_tensor(item[part]) for item in pictures(root, False)]) for part in (0, 1))
        accuracy = (model(x).argmax(1) == y).float().mean().item()
        raygo.shutdown()
        print(f"loss {result.metrics['loss']:.3f} after {given.epochs} epochs; the best model is right on {accuracy:.1%} of the test pictures")
        if not given.data and accuracy < 0.9:
            raise SystemExit("that is less than it should be")


if __name__ == "__main__":
    main()
