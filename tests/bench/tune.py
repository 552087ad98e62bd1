"""What a search costs beside its trials: `python tests/bench/tune.py [--trials 1000] [--json]`, half a minute.

Trials that do nothing, so that all of the time is raygo's.  "driver" is the CPU time of the thread that runs the search, which is what bounds how
many trials a search can have; it holds still better than the wall clock on a machine that does other things.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from typing import Any

import raygo
from raygo import tune
from raygo.tune.schedulers import ASHAScheduler

REPORTS = 20


def trivial(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": config["x"]}


def reports(config: dict[str, Any]) -> None:
    for i in range(config.get("reports", REPORTS)):
        tune.report({"loss": config["x"] / (i + 1)})


def torch_trial(config: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"loss": float(torch.ones(1))}


class Took:
    """Seconds on the wall and of this thread's CPU."""

    def __enter__(self) -> Took:
        self._wall, self._cpu = time.monotonic(), time.thread_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.wall, self.cpu = time.monotonic() - self._wall, time.thread_time() - self._cpu


def search(folder: str, name: str, function: Any, count: int, scheduler: Any = None, **config: Any) -> Took:
    tuner = tune.Tuner(function, param_space={"x": tune.uniform(0, 1), **config},
                       tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=count, scheduler=scheduler),
                       run_config=tune.RunConfig(storage_path=folder, name=name, verbose=0))
    with Took() as took:
        grid = tuner.fit()
    assert len(grid) == count and not grid.num_errors
    return took


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    count = options.trials
    raygo.init(num_cpus=max(2, os.cpu_count() or 2), log_to_driver=False)
    rows: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        rows["first search of 10 trials, s"] = search(folder, "cold", trivial, 10).wall
        rows["50 trivial trials, s"] = search(folder, "fifty", trivial, 50).wall
        before = resident()
        took = search(folder, "many", trivial, count)
        rows["driver, ms a trial"] = took.cpu / count * 1e3
        rows["wall, ms a trial"] = took.wall / count * 1e3
        rows["memory, KiB a trial"] = (resident() - before) / count / 1024
        with Took() as took:
            restored = tune.Tuner.restore(os.path.join(folder, "many"), trainable=trivial).get_results()
        assert len(restored) == count
        rows["restore, ms a trial"] = took.wall / count * 1e3
        took = search(folder, "reports", reports, 2, reports=count)
        rows["report, ms"] = took.wall / (2 * count) * 1e3
        rows["driver, ms a report"] = took.cpu / (2 * count) * 1e3
        rows[f"ASHA, 50 trials of {REPORTS} reports, s"] = search(folder, "asha", reports, 50, ASHAScheduler(max_t=REPORTS, grace_period=2)).wall
        search(folder, "import", torch_trial, 2)
        rows["trial that imports torch, ms"] = search(folder, "torch", torch_trial, 20).wall / 20 * 1e3
    raygo.shutdown()
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for name, value in rows.items():
            print(f"{name:40} {value:10.2f}")


if __name__ == "__main__":
    main()
