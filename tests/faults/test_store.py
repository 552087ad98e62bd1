"""A store that is too small, a disk that is full."""
import functools
import operator
import os
import subprocess
import time

import numpy as np
import pytest

import raygo
from raygo.exceptions import GetTimeoutError, ObjectStoreFullError, OutOfDiskError

MB = 2**20


@pytest.fixture
def small():
    raygo.shutdown()
    raygo.init(num_cpus=4, include_dashboard=False, object_store_memory=24 * MB, log_to_driver=False)
    yield raygo
    raygo.shutdown()


@raygo.remote
def make(i, size=3 * MB):
    return np.full(size // 8, i, dtype=np.float64)


@raygo.remote
def first(*arrays):
    time.sleep(0.01)
    return [float(a[0]) for a in arrays]


def test_a_store_larger_than_memory_is_refused():
    """It would never spill: the kernel would end processes first."""
    raygo.shutdown()
    with pytest.raises(ValueError, match=rf"object_store_memory is {2**50} bytes, and there are \d+ bytes of memory"):
        raygo.init(object_store_memory=2**50, include_dashboard=False)
    assert not raygo.is_initialized()


def test_tasks_whose_arguments_do_not_fit_together_take_turns(small):
    """Four tasks at a time need 9 MB each: if each held a part and waited for the rest, none would go on."""
    refs = [make.remote(i) for i in range(20)]
    raygo.wait(refs, num_returns=len(refs), timeout=30)
    begin = time.monotonic()
    assert raygo.get([first.remote(*refs[i : i + 3]) for i in range(18)], timeout=50) == [[i, i + 1, i + 2] for i in range(18)]
    assert time.monotonic() - begin < 40


def test_arguments_that_never_fit_together_are_read_on_disk(small):
    refs = [make.remote(i) for i in range(20)]
    assert raygo.get([first.remote(*refs) for _ in range(3)], timeout=50) == [list(range(20))] * 3


def test_a_call_that_never_ends_starves_no_task(small):
    @raygo.remote
    class Keeper:
        def run(self, *arrays):
            time.sleep(3600)

    refs = [make.remote(i) for i in range(10)]
    keeper = Keeper.remote()
    keeper.run.remote(*refs[:6])
    assert raygo.get([first.remote(*refs[4:]) for _ in range(3)], timeout=50) == [list(range(4, 10))] * 3


def test_results_find_room_while_arguments_fill_the_store():
    """Two tasks at a time have 20 MB of arguments and make 10 MB, all kept, in a store of 64 MB."""
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=64 * MB, log_to_driver=False)
    try:

        @raygo.remote
        def add(a, b):
            return a + b

        parts = [make.remote(i, 10 * MB) for i in range(10)]
        sums = [add.remote(parts[i % 10], parts[(i + 1 + i // 10) % 10]) for i in range(40)]
        for i, ref in enumerate(sums):
            value = raygo.get(ref, timeout=60)
            assert (value == i % 10 + (i + 1 + i // 10) % 10).all()
            del value
    finally:
        raygo.shutdown()


def test_nested_gets_under_pressure(small):
    @raygo.remote
    def outer(i, big):
        inner = [make.remote(i * 10 + k) for k in range(3)]
        return float(big[0]) + sum(float(v[-1]) for v in raygo.get(inner))

    big = [make.remote(i) for i in range(8)]
    assert raygo.get([outer.remote(i, big[i % 8]) for i in range(12)], timeout=60) == [i % 8 + 30 * i + 3 for i in range(12)]


def test_a_shuffle_of_twice_the_store_loses_nothing():
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=64 * MB, log_to_driver=False)
    try:
        nmap, nreduce, rows = 16, 8, MB

        @raygo.remote(num_returns=nreduce)
        def split(seed):
            x = np.random.default_rng(seed).integers(0, 2**63, rows)
            return [x[x % nreduce == k] for k in range(nreduce)]

        @raygo.remote
        def join(k, *parts):
            x = np.concatenate(parts)
            assert (x % nreduce == k).all()
            return len(x), int(np.bitwise_xor.reduce(x))

        maps = [split.remote(seed) for seed in range(nmap)]
        got = raygo.get([join.remote(k, *[m[k] for m in maps]) for k in range(nreduce)], timeout=110)
        want = 0
        for seed in range(nmap):
            want ^= int(np.bitwise_xor.reduce(np.random.default_rng(seed).integers(0, 2**63, rows)))
        assert sum(n for n, _ in got) == nmap * rows
        assert functools.reduce(operator.xor, (x for _, x in got)) == want
    finally:
        raygo.shutdown()


def test_a_get_that_waits_for_room_says_so(small):
    refs = [make.remote(i) for i in range(10)]
    raygo.wait(refs, num_returns=len(refs), timeout=30)
    with pytest.raises(GetTimeoutError, match="is on disk and waits for room"):
        raygo.get(refs, timeout=0.3)
    assert raygo.get(refs[0], timeout=20)[0] == 0


def test_a_get_of_more_than_the_store_reads_the_rest_on_disk(small):
    refs = [make.remote(i) for i in range(20)]
    values = raygo.get(refs, timeout=50)
    assert [(v[0], v[-1], len(v), v.flags.writeable) for v in values] == [(i, i, 3 * MB // 8, False) for i in range(20)]
    del refs
    assert [v.sum() for v in values] == [i * 3 * MB // 8 for i in range(20)]


def test_an_object_larger_than_the_store_works_through_disk(small):
    @raygo.remote
    def inside(x):
        big = raygo.put(bytes(range(256)) * (MB // 8))
        return float(x.sum()), len(raygo.get(big)), raygo.get(big)[-1]

    @raygo.remote
    def items():
        for i in range(2):
            yield np.full(32 * MB // 8, i, dtype=np.float64)

    given = np.arange(32 * MB // 8, dtype=np.float64)
    ref = raygo.put(given)
    got = raygo.get(ref)
    assert not got.flags.writeable
    assert np.array_equal(got, given)
    del ref  # the view keeps it
    assert np.array_equal(got, given)
    ref = raygo.put(given)
    assert raygo.get(inside.remote(ref), timeout=50) == (given.sum(), 32 * MB, 255)
    assert raygo.get(make.remote(7, 40 * MB), timeout=50).sum() == 7 * 40 * MB // 8
    assert [raygo.get(r, timeout=50)[-1] for r in items.remote()] == [0, 1]


def test_an_object_that_neither_store_nor_disk_can_take_is_an_error_with_both_sizes(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", tmp_path], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        raygo.shutdown()
        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * MB, log_to_driver=False, _object_spilling_directory=str(tmp_path))
        with pytest.raises(ObjectStoreFullError, match=r"\(41943\d\d\d bytes\).*\(25165824 bytes\).*30.0 MiB free.*no space left"):
            raygo.put(np.zeros(40 * MB // 8))
        assert raygo.get(raygo.put(np.ones(26 * MB // 8))).sum() == 26 * MB // 8
    finally:
        raygo.shutdown()
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_an_error_of_that_object(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", tmp_path], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        raygo.shutdown()
        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * MB, log_to_driver=False, _object_spilling_directory=str(tmp_path))
        refs = []
        with pytest.raises(OutOfDiskError, match="no space left.*Free space on that disk"):
            while len(refs) < 20:
                refs.append(raygo.put(np.zeros(3 * MB // 8)))
        refs.clear()
        assert raygo.get(make.remote(5), timeout=20)[0] == 5
        raygo.shutdown()
        assert os.listdir(tmp_path) == []
    finally:
        raygo.shutdown()
        subprocess.run(["umount", "-l", tmp_path], check=True)
