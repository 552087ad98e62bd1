"""Searches learning rate and width of a network on scikit-learn's digits: TorchTrainer, Optuna's proposals, ASHA's early stops.

Needs raygo[tune], optuna and scikit-learn.  Run it as it is: `python tune_digits.py`.
"""
from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np

import raygo
import raygo.train
import raygo.train.torch
from raygo import tune
from raygo.train import Checkpoint, ScalingConfig
from raygo.train.torch import TorchTrainer
from raygo.tune.schedulers import ASHAScheduler
from raygo.tune.search.optuna import OptunaSearch


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1797 images of 8 x 8 and their digits, in one fixed random order."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def loop(config: dict[str, float]) -> None:
    """What each worker of a trial does."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    images, labels = (torch.from_numpy(array) for array in digits())
    loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=64, shuffle=True)
    loader = raygo.train.torch.prepare_data_loader(loader)
    width = int(config["width"])
    net = raygo.train.torch.prepare_model(nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)))
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)
    for _ in range(int(config["epochs"])):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (net(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()
        with tempfile.TemporaryDirectory() as folder:
            if raygo.train.get_context().get_world_rank() == 0:
                torch.save(net.state_dict(), os.path.join(folder, "net.pt"))
            raygo.train.report({"accuracy": accuracy}, checkpoint=Checkpoint.from_directory(folder))


def main(trials: int, epochs: int, workers: int) -> float:
    """Search, and return the best accuracy."""
    trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=workers, trainer_resources={"CPU": 0}))
    space = {"train_loop_config": {"lr": tune.loguniform(1e-4, 1.0), "width": tune.choice([8, 32, 128]), "epochs": epochs}}
    tuner = tune.Tuner(trainer, param_space=space,
                       tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=trials, search_alg=OptunaSearch(seed=1),
                                                   scheduler=ASHAScheduler(max_t=epochs, grace_period=1, reduction_factor=2)),
                       run_config=tune.RunConfig(name="digits", storage_path=tempfile.mkdtemp(prefix="tune_digits_")))
    grid = tuner.fit()
    best = grid.get_best_result(scope="all")
    config = best.config["train_loop_config"]
    stopped = sum(result.metrics["training_iteration"] < epochs for result in grid)
    print(f"best accuracy {best.metrics['accuracy']:.3f} with lr={config['lr']:.4g}, width={config['width']}; "
          f"{stopped} of {len(grid)} trials were stopped early")
    print(f"its checkpoint: {best.checkpoint.path}")
    return float(best.metrics["accuracy"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    raygo.init(num_cpus=max(2, given.workers), log_to_driver=False)
    if main(given.trials, given.epochs, given.workers) < 0.8:
        raise SystemExit("no configuration came to an accuracy of 0.8")
