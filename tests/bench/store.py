"""The object store's speed, held against what this machine copies at: `python tests/bench/store.py [--json]`, half a minute.

Rates are medians, taken in turns with the copies they are compared with, because other work on the machine slows both.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy

import raygo

SOURCE = Path(__file__).with_name("copy_bound.c")


def copier() -> Callable[[numpy.ndarray, numpy.ndarray, int], float]:
    """Compile the copy that is the bound; what is returned gives the seconds of one copy on so many threads."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "copy_bound.so"
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-O2", "-shared", "-fPIC", SOURCE, "-o", library, "-lpthread"], check=True)
        seconds = ctypes.CDLL(str(library)).copy_seconds
    seconds.restype = ctypes.c_double
    seconds.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return lambda to, source, threads: float(seconds(to.ctypes.data, source.ctypes.data, source.nbytes, threads))


def timed(step: Callable[[], object]) -> float:
    """Return the seconds that `step` took; what it returned lives until it has ended."""
    begin = time.perf_counter()
    kept = step()
    spent = time.perf_counter() - begin
    del kept
    return spent


@raygo.remote
def puts(size: int, n: int) -> float:
    """Return the median seconds of a put in a worker."""
    data = numpy.ones(size, numpy.uint8)
    return statistics.median(timed(lambda: raygo.put(data)) for _ in range(n))


@raygo.remote
def touch(array: numpy.ndarray) -> int:
    """Look at one element, as a task that shares a large argument with others."""
    return int(array[0])


def large(seconds: Callable[[numpy.ndarray, numpy.ndarray, int], float], mb: int, n: int) -> dict[str, float]:
    """Measure puts and gets of one size in turns with copies on one and two threads."""
    source, to = numpy.ones(mb << 20, numpy.uint8), numpy.ones(mb << 20, numpy.uint8)
    out = {f"put_first_{mb}mb_gb_per_s": source.nbytes / timed(lambda: raygo.put(source)) / 1e9}
    out[f"first_touch_of_a_memory_file_{mb}mb_gb_per_s"] = source.nbytes / first_touch(source) / 1e9
    put, get, one, two = [], [], [], []
    for _ in range(n):
        one.append(seconds(to, source, 1))
        two.append(seconds(to, source, 2))
        begin = time.perf_counter()
        ref = raygo.put(source)
        put.append(time.perf_counter() - begin)
        get.append(timed(lambda ref=ref: raygo.get(ref)))
        del ref
    out[f"put_{mb}mb_gb_per_s"] = source.nbytes / statistics.median(put) / 1e9
    out[f"put_{mb}mb_of_copy_on_two_threads"] = statistics.median(two) / statistics.median(put)
    out[f"put_{mb}mb_of_copy_on_one_thread"] = statistics.median(one) / statistics.median(put)
    out[f"get_{mb}mb_us"] = statistics.median(get) * 1e6
    return out


def first_touch(source: numpy.ndarray) -> float:
    """Return the seconds of a copy into a new memory file, as the store's first put has it: what the system takes to find the memory."""
    fd = os.memfd_create("first")
    os.ftruncate(fd, source.nbytes)
    area = mmap.mmap(fd, source.nbytes)
    os.close(fd)
    to = numpy.frombuffer(area, numpy.uint8)
    return timed(lambda: numpy.copyto(to, source))


@contextlib.contextmanager
def all_but_one_busy() -> Iterator[None]:
    """Keep the other processors busy with programs that have nothing to do with the store."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(len(os.sched_getaffinity(0)) - 1)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def beside(seconds: Callable[[numpy.ndarray, numpy.ndarray, int], float], mb: int, n: int) -> dict[str, float]:
    """Measure puts in turns with copies on one thread, while all other processors are busy."""
    source, to = numpy.ones(mb << 20, numpy.uint8), numpy.ones(mb << 20, numpy.uint8)
    put, one = [], []
    with all_but_one_busy():
        for _ in range(n):
            one.append(seconds(to, source, 1))
            put.append(timed(lambda: raygo.put(source)))
    return {f"put_{mb}mb_beside_busy_of_copy_on_one_thread": statistics.median(one) / statistics.median(put)}


def rows() -> dict[str, float]:
    """Measure: name -> value."""
    seconds = copier()
    raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=2600 << 20)
    out = large(seconds, 100, 30) | large(seconds, 1000, 4) | beside(seconds, 100, 30)
    raygo.get(puts.remote(100_000, 1))
    for size in (100_000, 300_000, 1 << 20):
        out[f"put_{size}_in_worker_us"] = raygo.get(puts.remote(size, 300)) * 1e6
    argument = raygo.put(numpy.ones(100 << 20, numpy.uint8))
    small = raygo.put(numpy.ones(1, numpy.uint8))
    raygo.get([touch.remote(x) for x in (argument, small)])

    def hundred(x: object) -> float:
        return statistics.median(timed(lambda: raygo.get([touch.remote(x) for _ in range(100)])) for _ in range(5))

    out["argument_100mb_to_100_tasks_extra_ms"] = (hundred(argument) - hundred(small)) * 1e3
    thousand = bytes(1024)
    out["put_1kb_per_s"] = 10_000 / statistics.median(timed(lambda: [raygo.put(thousand) for _ in range(10_000)]) for _ in range(5))
    raygo.shutdown()
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = rows()
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:44} {value:14,.2f}")
