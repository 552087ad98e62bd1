"""Objects that processes cut themselves from space the engine has lent."""
import os
import signal
import time

import numpy as np
import pytest

import raygo
from raygo._calls import call
from raygo.exceptions import WorkerCrashedError

SIZES = [70_000, 100_001, 2**17, 300_000, 2**20, 2**20 + 60_000]


def stats():
    return call("store.stats")


def settled():
    """Nothing is lent or used any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        s = stats()
        if not (s["used"] or s["chunk_unused"] or s["chunks"]):
            return True
        time.sleep(0.02)
    return s


def pattern(i, size):
    return np.random.default_rng(i).integers(0, 255, size, dtype=np.uint8)


@raygo.remote
def puts(first, n):
    return [raygo.put(pattern(i, SIZES[i % len(SIZES)])) for i in range(first, first + n)]


@raygo.remote
def one(i):
    return pattern(i, SIZES[i % len(SIZES)])


@raygo.remote(num_returns="streaming")
def items(first, n):
    for i in range(first, first + n):
        yield pattern(i, SIZES[i % len(SIZES)])


def lent(size):
    """Puts objects until the process has been lent space; a process that pauses gives it back."""
    refs, deadline = [], time.monotonic() + 30
    data = np.zeros(size, np.uint8)
    while not stats()["chunks"]:
        assert time.monotonic() < deadline, stats()
        refs = [raygo.put(data) for _ in range(8)]
    return refs


@raygo.remote(max_retries=0)
def dies(path):
    refs = lent(100_000)
    path.write_text("ready")
    os.kill(os.getpid(), signal.SIGKILL)
    return refs


def test_puts_results_and_items_of_many_sizes(runtime):
    refs = [ref for part in raygo.get([puts.remote(0, 150), puts.remote(150, 150)]) for ref in part]
    results = [one.remote(i) for i in range(300, 400)]
    streamed = list(items.remote(400, 60))
    for i, ref in enumerate(refs + results + streamed):
        assert np.array_equal(raygo.get(ref), pattern(i, SIZES[i % len(SIZES)])), i
    # Freed one by one, in an order of their own.
    everything = refs + results + streamed
    del refs, results, streamed, ref
    kept = everything[::7]
    del everything
    for k, ref in enumerate(kept):
        i = 7 * k
        assert np.array_equal(raygo.get(ref), pattern(i, SIZES[i % len(SIZES)])), i
    del kept, ref
    assert settled() is True


def test_a_killed_process_leaves_no_space_lent(runtime, tmp_path):
    with pytest.raises(WorkerCrashedError):
        raygo.get(dies.remote(tmp_path / "ready"))
    assert (tmp_path / "ready").exists()
    assert settled() is True


def test_lent_space_comes_back_when_a_large_object_needs_it():
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=64 * 2**20, log_to_driver=False)
    try:
        @raygo.remote
        class Writer:
            def write(self, n):
                self.refs = [raygo.put(pattern(i, 2**20)) for i in range(n)]
                self.more = lent(2**20)

            def check(self):
                return all(np.array_equal(raygo.get(r), pattern(i, 2**20)) for i, r in enumerate(self.refs))

        writer = Writer.remote()
        raygo.get(writer.write.remote(12))
        whole = np.ones(63 * 2**20, np.uint8)
        ref = raygo.put(whole)  # needs what is lent, and the others go to disk
        assert np.array_equal(raygo.get(ref), whole)
        del ref
        assert raygo.get(writer.check.remote(), timeout=60)
        del writer
        assert settled() is True
    finally:
        raygo.shutdown()


OTHER = """
import os, socket, sys, time
import numpy as np
import raygo
from raygo._calls import call

raygo.init(address="auto", log_to_driver=False)
data = np.zeros(100_000, np.uint8)
while not call("store.stats")["chunks"]:
    raygo.put(data)
for fd in os.listdir("/proc/self/fd"):
    try:
        s = socket.socket(fileno=os.dup(int(fd)))
        if s.family == socket.AF_UNIX and s.getpeername() and "engine" in sys.argv:
            s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
if "end" in sys.argv:
    raygo.shutdown()
print("done", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["engine", "end"])
def test_another_program_keeps_what_it_was_lent_while_it_may_write_there(runtime, driver, how):
    process = driver(OTHER, how)
    assert process.stdout.readline() == "done\n", process.stderr.read()
    if how == "engine":  # its connection is gone, and it lives
        time.sleep(0.5)
        assert stats()["chunk_unused"] > 0
        process.kill()
    assert settled() is True
