"""Threads of one actor take calls from each other; none is lost and the actor stays."""
import random
import time

import pytest

import raygo


@pytest.fixture(scope="module", autouse=True)
def runtime():
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    raygo.shutdown()


@raygo.remote(concurrency_groups={"x": 2, "y": 1, "z": 3})
class Groups:
    @raygo.method(concurrency_group="x")
    def x(self, i):
        return "x", i

    @raygo.method(concurrency_group="y")
    def y(self, i):
        if i % 50 == 0:
            time.sleep(0.002)
        return "y", i

    @raygo.method(concurrency_group="z")
    def z(self, i):
        return "z", i

    def d(self, i):
        return "d", i


@raygo.remote(max_concurrency=4)
class Threads:
    def echo(self, i):
        return i


def test_bursts_of_calls_to_many_groups():
    rng = random.Random(3)
    groups, threads = Groups.remote(), Threads.remote()
    for _ in range(150):
        size = rng.choice([1, 2, 5, 50, 300])
        wanted = [(rng.choice("xyzd"), i) for i in range(size)]
        refs = [getattr(groups, method).remote(i) for method, i in wanted]
        assert raygo.get(refs, timeout=20) == wanted
        assert raygo.get([threads.echo.remote(i) for i in range(size)], timeout=20) == list(range(size))
