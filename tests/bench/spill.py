"""Spilling and restoring against what dd says of the same disk in the same run, and against puts at the same time."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time

import numpy

import raygo
from raygo import _calls

MB = 1 << 20


def dd(folder: str, size: int) -> tuple[float, float]:
    """Write and read a file past the page cache; return both rates in MB/s."""
    path = os.path.join(folder, "dd")
    rates = []
    for arguments in (
        ["if=/dev/zero", f"of={path}", "oflag=direct", "conv=fdatasync"],
        [f"if={path}", "of=/dev/null", "iflag=direct"],
    ):
        begin = time.perf_counter()
        subprocess.run(["dd", *arguments, "bs=8M", f"count={size // (8 * MB)}"], check=True, capture_output=True)
        rates.append(size / 1e6 / (time.perf_counter() - begin))
    os.remove(path)
    return rates[0], rates[1]


def stats() -> dict[str, float]:
    """Return the store's figures."""
    return _calls.call("store.stats", None)


def put_time(value: numpy.ndarray) -> float:
    """Put and drop a value; seconds."""
    begin = time.perf_counter()
    raygo.put(value)
    return time.perf_counter() - begin


def quiet() -> float:
    """Wait until nothing is written to disk; the seconds spent on that so far."""
    spent = -1.0
    while spent != (now := stats()["spill_s"]):
        spent = now
        time.sleep(0.3)
    return spent


def beside(small: numpy.ndarray, spent: float) -> tuple[list[float], list[float]]:
    """Put while an object is being written to disk, until more than `spent` has been spent at that, and as often afterwards.

    The first two count nowhere: the large object has just taken the pages that they would have found warm.
    """
    put_time(small), put_time(small)
    during, end = [], time.perf_counter() + 2
    while stats()["spill_s"] == spent and time.perf_counter() < end:
        during.append(put_time(small))
    return during, [put_time(small) for _ in during]


def rows(folder: str, store: int, piece: int) -> dict[str, float]:
    """Measure: name -> value."""
    raygo.init(num_cpus=1, object_store_memory=store, include_dashboard=False, _object_spilling_directory=folder)
    small, large = numpy.ones(4 * MB, numpy.uint8), numpy.ones(piece, numpy.uint8)
    raygo.put(numpy.ones(store - 4 * MB, numpy.uint8))  # all pages have memory, in one piece
    kept = [raygo.put(large) for _ in range(store * 8 // 10 // piece)]
    while not stats()["spilled_total"]:  # from here on each one more has one written
        kept.append(raygo.put(large))
        time.sleep(0.5)
    for _ in range(20):
        put_time(small)
    before = dd(folder, store)
    was = stats()
    during, alone = [], []
    for _ in range(store // piece):
        spent = quiet()
        kept.append(raygo.put(large))
        pair = beside(small, spent)
        if len(pair[0]) > 2:  # else the large object had waited for room, and most was written by then
            during += pair[0]
            alone += pair[1]
    now = stats()
    spilled = (now["spilled_total"] - was["spilled_total"]) / 1e6
    begin = time.perf_counter()
    for ref in kept:
        assert raygo.get(ref)[-1] == 1
    read = time.perf_counter() - begin
    end = stats()
    restored = (end["restored_total"] - now["restored_total"]) / 1e6
    after = dd(folder, store)
    raygo.shutdown()
    return {
        "dd_write_MB_s": (before[0] + after[0]) / 2,
        "dd_read_MB_s": (before[1] + after[1]) / 2,
        "spill_MB_s": spilled / (now["spill_s"] - was["spill_s"]),
        "restore_MB_s": restored / (end["restore_s"] - now["restore_s"]),
        "get_wall_MB_s": restored / read,
        "put_alone_MB_s": small.nbytes / 1e6 / statistics.mean(alone or [math.nan]),
        "put_while_spilling_MB_s": small.nbytes / 1e6 / statistics.mean(during or [math.nan]),
        "puts_while_spilling": len(during),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to spill to; default: a temporary folder")
    parser.add_argument("--store", type=int, default=1024, help="MB of the store")
    parser.add_argument("--piece", type=int, default=64, help="MB of an object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        out = rows(folder, given.store * MB, given.piece * MB)
    out["spill_to_dd"] = out["spill_MB_s"] / out["dd_write_MB_s"]
    out["restore_to_dd"] = out["restore_MB_s"] / out["dd_read_MB_s"]
    out["put_beside_to_alone"] = out["put_while_spilling_MB_s"] / out["put_alone_MB_s"]
    print(json.dumps({k: round(v, 2) for k, v in out.items()}, indent=1))


if __name__ == "__main__":
    main()
