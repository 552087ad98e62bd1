"""Trains a small network on scikit-learn's digits with two workers, data-parallel, and says what happens on the way.

Needs raygo[train] and scikit-learn.  Run it as it is: `python digits_ddp.py`.
"""
from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np

import raygo
import raygo.train
import raygo.train.torch
from raygo.train import Checkpoint, RunConfig, ScalingConfig
from raygo.train.torch import TorchConfig, TorchTrainer
from raygo.util.state import list_objects

BEGIN = time.perf_counter()


def say(text: str) -> None:
    """One line with the seconds since the start."""
    print(f"[{time.perf_counter() - BEGIN:6.2f} s] {text}", flush=True)


@raygo.remote
def column_means(images: np.ndarray, part: int, parts: int) -> tuple[int, np.ndarray]:
    """The mean image of a part of the data; `images` is a view on shared memory, not a copy."""
    return os.getpid(), images[part::parts].mean(axis=0)


@raygo.remote
class Tally:
    """Counts what it is told, in a process of its own."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, labels: np.ndarray) -> int:
        """Count labels; how many there are now."""
        for label in labels.tolist():
            self.counts[label] = self.counts.get(label, 0) + 1
        return sum(self.counts.values())

    def result(self) -> tuple[int, dict[int, int]]:
        """The process and the counts."""
        return os.getpid(), dict(sorted(self.counts.items()))


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """1797 images of 8 x 8 and their digits, in one fixed random order."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)


def train_on_digits(config: dict) -> None:
    """What each worker runs."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    images, labels = (torch.from_numpy(array.copy()) for array in raygo.get(config["data"]))
    split = config["train_rows"]
    loader = DataLoader(TensorDataset(images[:split], labels[:split]), batch_size=config["batch_size"], shuffle=True)
    loader = raygo.train.torch.prepare_data_loader(loader)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = raygo.train.torch.prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    loss_of = torch.nn.CrossEntropyLoss()
    context = raygo.train.get_context()
    print(f"rank {context.get_world_rank()} of {context.get_world_size()} trains on {len(loader.sampler)} images in process {os.getpid()}")

    for epoch in range(config["epochs"]):
        if context.get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        with torch.no_grad():
            accuracy = (model(images[split:]).argmax(1) == labels[split:]).float().mean().item()
        metrics = {"epoch": epoch, "loss": total / len(loader), "accuracy": accuracy, "pid": os.getpid(), "backend": torch.distributed.get_backend()}
        with tempfile.TemporaryDirectory() as folder:
            if context.get_world_rank() == 0:
                inner = model.module if hasattr(model, "module") else model
                torch.save(inner.state_dict(), os.path.join(folder, "model.pt"))
            raygo.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    """The whole demo."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--storage", help="where the run is stored; a new temporary folder by default")
    given = options.parse_args()

    raygo.init(num_cpus=max(given.workers, os.cpu_count() or 1), log_to_driver=True)
    say(f"raygo {raygo.__version__} is up with {raygo.cluster_resources()['CPU']:g} CPUs; this is process {os.getpid()}")

    images, labels = load_digits()
    stored = raygo.put(images)
    start = time.perf_counter()
    parts = raygo.get([column_means.remote(stored, part, 8) for part in range(8)])
    took = time.perf_counter() - start
    say(f"8 tasks in processes {sorted({pid for pid, _ in parts})} averaged {len(images)} images in {took * 1e3:.1f} ms; "
        f"mean brightness {np.mean([mean for _, mean in parts]):.3f}")

    tally = Tally.remote()
    for chunk in np.array_split(labels, 6):
        tally.add.remote(chunk)
    pid, counts = raygo.get(tally.result.remote())
    say(f"an actor in process {pid} counted the digits: {counts}")

    start = time.perf_counter()
    many = raygo.get([column_means.remote(stored, part % 8, 8) for part in range(1000)])
    took = time.perf_counter() - start
    say(f"{len(many)} more tasks took {took:.2f} s: {len(many) / took:,.0f} tasks/s")

    folder = given.storage or tempfile.mkdtemp(prefix="raygo-demo-")      # it stays, to look into
    data = raygo.put((images, labels))
    say(f"training on {given.workers} workers")
    trainer = TorchTrainer(
        train_on_digits,
        train_loop_config={"data": data, "train_rows": 1437, "batch_size": 32, "lr": 3e-3, "epochs": given.epochs},
        torch_config=TorchConfig(backend="raygo"),  # the default, which for the sake of programs written for Ray answers to "gloo" unless asked for
        scaling_config=ScalingConfig(num_workers=given.workers),
        run_config=RunConfig(name="digits", storage_path=folder),
    )
    start = time.perf_counter()
    result = trainer.fit()
    say(f"trained {given.epochs} epochs in {time.perf_counter() - start:.2f} s; the first one waits for the workers to start and to import torch")
    for checkpoint, metrics in result.best_checkpoints or []:
        print(f"    epoch {metrics['epoch']:2d}   loss {metrics['loss']:.4f}   accuracy {metrics['accuracy']:.3f}   "
              f"{metrics['time_this_iter_s']:6.3f} s   {os.path.basename(checkpoint.path)}")

    best = result.get_best_checkpoint("accuracy", "max")
    assert best is not None and result.metrics is not None
    say(f"the gradients were summed by the backend {result.metrics['backend']!r}; the best checkpoint is {best.path}")
    held = list_objects(limit=10_000)
    say(f"the images ({images.nbytes / 1e3:.0f} kB) went to the object store once and all tasks read them there; "
        f"now it has {len(held)} objects with {sum(o.object_size for o in held) / 1e3:.0f} kB")
    accuracy = result.metrics["accuracy"]
    raygo.shutdown()
    say(f"accuracy on {len(labels) - 1437} images that training did not see: {accuracy:.1%}")
    if accuracy < 0.95:
        raise SystemExit("that is less than it should be")


if __name__ == "__main__":
    main()
