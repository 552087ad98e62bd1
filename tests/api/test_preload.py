"""Heavy modules are imported once, in the template."""
import os
import time

import pytest

import raygo
from raygo._calls import call


@pytest.fixture
def runtime():
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    raygo.shutdown()


@raygo.remote
def has(name):
    import sys

    time.sleep(0.2)
    return os.getpid(), name in sys.modules


def test_a_driver_asks_for_modules(runtime):
    before = dict(raygo.get([has.remote("numpy") for _ in range(4)]))
    assert not any(before.values())
    call("modules.preload", {"modules": ["numpy"]}, 60)
    after = dict(raygo.get([has.remote("numpy") for _ in range(4)]))
    assert all(after.values()) and not before.keys() & after.keys()
    call("modules.preload", {"modules": ["numpy"]}, 5)  # known: answered at once


def test_a_module_that_is_not_there_does_no_harm(runtime):
    call("modules.preload", {"modules": ["no_such_module_4711"]}, 60)
    assert not any(found for _, found in raygo.get([has.remote("no_such_module_4711") for _ in range(3)], timeout=30))


def test_right_after_init(runtime):
    call("modules.preload", {"modules": ["numpy"]}, 60)
    assert all(found for _, found in raygo.get([has.remote("numpy") for _ in range(3)], timeout=30))
