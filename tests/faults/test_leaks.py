"""What is taken is given back."""
import gc
import os
import threading
import time

import pytest

import raygo
from raygo.util.state import list_objects

ROUNDS = int(os.environ.get("RAYGO_ROUNDS", "60"))   # the thousand: RAYGO_ROUNDS=1000


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def figures():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), rss_mb()


@pytest.mark.timeout(900)
def test_rounds_of_init_and_shutdown():
    raygo.shutdown()

    @raygo.remote
    def one():
        return 1

    def round():
        raygo.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        assert raygo.get(one.remote(), timeout=30) == 1
        raygo.shutdown()

    for _ in range(10):
        round()
    before = figures()
    for _ in range(ROUNDS):
        round()
    gc.collect()
    after = figures()
    assert after[0] <= before[0] + 1, f"descriptors {before[0]} -> {after[0]}"
    assert after[1] <= before[1] + 2, f"threads {before[1]} -> {after[1]}"
    assert after[2] <= before[2] + 10, f"memory {before[2]:.0f} -> {after[2]:.0f} MB"
    assert threading.active_count() <= 2


def test_a_hundred_thousand_references(runtime):
    stats = lambda: len(list_objects(limit=10))  # noqa: E731
    refs = [raygo.put(i) for i in range(100_000)]
    assert raygo.get(refs[::10_000]) == list(range(0, 100_000, 10_000))
    del refs
    end = time.monotonic() + 10
    while stats() and time.monotonic() < end:
        time.sleep(0.05)
    assert stats() == 0


def test_big_values_come_back(runtime):
    total = raygo.cluster_resources()["object_store_memory"]
    for i in range(30):
        ref = raygo.put(bytes([i]) * 20_000_000)
        assert raygo.get(ref)[:1] == bytes([i])
        del ref
    end = time.monotonic() + 10
    while raygo.available_resources()["object_store_memory"] < total and time.monotonic() < end:
        time.sleep(0.05)
    assert raygo.available_resources()["object_store_memory"] == total
