"""Spilling and restoring against what dd says of the same disk in the same run, and against puts at the same time."""

from __future__ import annotations

import argparse
import json
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


def put_rate(value: numpy.ndarray, times: int) -> float:
    """Put and drop a value; MB/s."""
    begin = time.perf_counter()
    for _ in range(times):
        raygo.put(value)
    return times * value.nbytes / 1e6 / (time.perf_counter() - begin)


def rows(folder: str, store: int, piece: int) -> dict[str, float]:
    """Measure: name -> value."""
    raygo.init(num_cpus=1, object_store_memory=store, include_dashboard=False, _object_spilling_directory=folder)
    small, large = numpy.ones(4 * MB, numpy.uint8), numpy.ones(piece, numpy.uint8)
    kept = [raygo.put(large) for _ in range(store * 7 // 10 // piece)]
    put_rate(small, 20)
    before = dd(folder, store)
    was = stats()
    beside, alone = [], []
    for _ in range(store // piece):
        spent = stats()["spill_s"]
        kept.append(raygo.put(large))
        beside.append(put_rate(small, 5))
        while stats()["clean"] and stats()["spill_s"] == spent:
            time.sleep(0.005)
        alone.append(put_rate(small, 5))
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
        "put_alone_MB_s": statistics.median(alone),
        "put_while_spilling_MB_s": statistics.median(beside),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to spill to; default: a temporary folder")
    parser.add_argument("--store", type=int, default=256, help="MB of the store")
    parser.add_argument("--piece", type=int, default=16, help="MB of an object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        out = rows(folder, given.store * MB, given.piece * MB)
    out["spill_to_dd"] = out["spill_MB_s"] / out["dd_write_MB_s"]
    out["restore_to_dd"] = out["restore_MB_s"] / out["dd_read_MB_s"]
    out["put_beside_to_alone"] = out["put_while_spilling_MB_s"] / out["put_alone_MB_s"]
    print(json.dumps({k: round(v, 2) for k, v in out.items()}, indent=1))


if __name__ == "__main__":
    main()
