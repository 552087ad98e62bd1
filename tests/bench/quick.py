"""A few rates in a few seconds: a look at whether something went badly wrong, not a measurement to quote."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

start = time.perf_counter()
import raygo  # noqa: E402

IMPORT_S = time.perf_counter() - start
import numpy  # noqa: E402


@raygo.remote
def nothing() -> None:
    """Cost nothing but the call."""


@raygo.remote
class Idle:
    """An actor whose calls cost nothing."""

    def nothing(self) -> None:
        """Cost nothing but the call."""


def rate(step: Callable[[], int], seconds: float) -> float:
    """Return how many per second `step` gets done; it returns how many one run was."""
    step()
    done, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        done += step()
    return done / spent


def rows(seconds: float) -> dict[str, float]:
    """Measure: name -> value; `_per_s` is more when better, `_ms` less."""
    begin = time.perf_counter()
    raygo.init(num_cpus=2)
    raygo.get(nothing.remote())
    out = {"import_ms": IMPORT_S * 1e3, "init_to_first_result_ms": (time.perf_counter() - begin) * 1e3}
    actor = Idle.remote()
    big = numpy.ones(100 << 20, numpy.uint8)

    def one(call: Callable[[], object]) -> Callable[[], int]:
        return lambda: (raygo.get(call()), 1)[1]

    def many(call: Callable[[], object]) -> Callable[[], int]:
        return lambda: len(raygo.get([call() for _ in range(1000)]))

    out["task_one_per_s"] = rate(one(nothing.remote), seconds)
    out["task_batch_per_s"] = rate(many(nothing.remote), seconds)
    out["actor_one_per_s"] = rate(one(actor.nothing.remote), seconds)
    out["actor_batch_per_s"] = rate(many(actor.nothing.remote), seconds)
    out["put_small_per_s"] = rate(lambda: len([raygo.put(i) for i in range(1000)]), seconds)
    ref = raygo.put(1)
    out["get_small_per_s"] = rate(lambda: len([raygo.get(ref) for _ in range(1000)]), seconds)
    out["put_100mb_gb_per_s"] = rate(lambda: len([raygo.put(big)]), seconds) * big.nbytes / 1e9
    stored = raygo.put(big)
    out["get_100mb_per_s"] = rate(one(lambda: stored), seconds)
    raygo.shutdown()
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = rows(options.seconds)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:26} {value:14,.1f}")
