"""raygo's collectives beside gloo's, through torch.distributed, in one run.

    python tests/bench/collective.py [--ranks 2 4] [--quick] [--json FILE]

Both backends have the same tensors and take turns, so that what else the machine does meets both; the figure is the best of the rounds, and only the
ratio means anything on a busy machine.  "direct" tensors lie in the group's memory, as the gradients of DistributedDataParallel do.
"""
from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

SIZES = {"4 KB": 1 << 12, "1 MB": 1 << 20, "25 MB": 25 << 20, "100 MB": 100 << 20}
MODEL_MB = 33


def turns(ways: dict[str, Callable[[], Any]], rounds: int, each: int) -> dict[str, float]:
    """Seconds of each way at its best; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            for _ in range(each):
                way()
            times[name].append((time.perf_counter() - begin) / each)
    return {name: min(values) for name, values in times.items()}


def rank_main(rank: int, world: int, folder: str, quick: bool, answers: Any) -> None:
    import torch
    import torch.distributed as dist

    from raygo.util.collective.torch_backend import empty, register_backend

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    register_backend()
    dist.init_process_group("gloo", store=dist.FileStore(os.path.join(folder, "store"), world), rank=rank, world_size=world)
    groups = {"gloo": dist.group.WORLD, "raygo": dist.new_group(backend="raygo")}
    results: dict[str, dict[str, float]] = {}
    for label, size in SIZES.items():
        tensors = {name: torch.ones(size // 4) for name in groups}
        tensors["direct"] = empty(size // 4, group=groups["raygo"]).fill_(1)
        ways: dict[str, Callable[[], Any]] = {}
        for name, tensor in tensors.items():
            group = groups.get(name, groups["raygo"])
            dist.all_reduce(tensor, group=group)
            assert tensor[0] == world and tensor[-1] == world
            tensor.zero_()      # and stays so, however often it is added up
            ways[name] = lambda t=tensor, g=group: dist.all_reduce(t, group=g)      # type: ignore[misc]
        results[label] = turns(ways, 5 if quick else 21, {"4 KB": 100, "1 MB": 10}.get(label, 1))
        del tensors, ways
    results[f"DDP step, {MODEL_MB} MB"] = steps(groups, quick)
    if rank == 0:
        answers.put(results)
    dist.barrier()
    dist.destroy_process_group()


def steps(groups: dict[str, Any], quick: bool) -> dict[str, float]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            width = 1024
            self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(MODEL_MB * (1 << 20) // (4 * width * (width + 1))))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.relu(layer(x))
            return x

    x = torch.ones(64, 1024)
    models = {name: DistributedDataParallel(Model(), process_group=group, gradient_as_bucket_view=True) for name, group in groups.items()}

    def step(model: Any) -> None:
        model.zero_grad(set_to_none=False)
        model(x).sum().backward()

    def local() -> None:
        with models["raygo"].no_sync():
            step(models["raygo"])

    return turns({"gloo": lambda: step(models["gloo"]), "raygo": lambda: step(models["raygo"]), "no_sync": local}, 5 if quick else 15, 1)


def measure(world: int, quick: bool) -> dict[str, dict[str, float]]:
    """The seconds of rank 0."""
    import torch  # noqa: F401 - once, before the ranks are forked

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, world, folder, quick, answers)) for rank in range(world)]
        for process in ranks:
            process.start()
        try:
            return answers.get(timeout=900)
        finally:
            for process in ranks:
                process.join(timeout=30)
                if process.is_alive():
                    process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description="raygo's collectives beside gloo's")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    everything = {}
    for world in options.ranks:
        results = everything[f"{world} ranks"] = measure(world, options.quick)
        print(f"{world} ranks ({os.cpu_count()} CPUs)")
        for label, times in results.items():
            others = "   ".join(f"{name} {seconds * 1e3:9.3f} ms ({times['gloo'] / seconds:5.1f} ×)" for name, seconds in times.items() if name != "gloo")
            print(f"  {label:20} gloo {times['gloo'] * 1e3:9.3f} ms   {others}")
        step = results[f"DDP step, {MODEL_MB} MB"]
        print(f"  a step of DDP takes {100 * (step['raygo'] / step['no_sync'] - 1):+.0f} % of one without exchange; with gloo "
              f"{100 * (step['gloo'] / step['no_sync'] - 1):+.0f} %")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
