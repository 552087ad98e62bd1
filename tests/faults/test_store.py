"""A store that is too small, a disk that is full."""
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


def test_tasks_whose_arguments_do_not_fit_together_take_turns(small):
    """Four tasks at a time need 9 MB each: if each held a part and waited for the rest, none would go on."""
    refs = [make.remote(i) for i in range(20)]
    raygo.wait(refs, num_returns=len(refs), timeout=30)
    begin = time.monotonic()
    assert raygo.get([first.remote(*refs[i : i + 3]) for i in range(18)], timeout=50) == [[i, i + 1, i + 2] for i in range(18)]
    assert time.monotonic() - begin < 40


def test_arguments_that_never_fit_fail_at_once(small):
    refs = [make.remote(i) for i in range(10)]
    raygo.wait(refs, num_returns=len(refs), timeout=30)
    with pytest.raises(ObjectStoreFullError, match=r"task first .* arguments have \d+ bytes together.*object_store_memory"):
        raygo.get(first.remote(*refs), timeout=20)


def test_a_get_that_waits_for_room_says_so(small):
    refs = [make.remote(i) for i in range(10)]
    raygo.wait(refs, num_returns=len(refs), timeout=30)
    with pytest.raises(GetTimeoutError, match="is on disk and waits for room"):
        raygo.get(refs, timeout=1)
    assert raygo.get(refs[0], timeout=20)[0] == 0


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
