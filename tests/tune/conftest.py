"""One session with four CPUs for all tests of searches."""
import pytest

import raygo


@pytest.fixture(scope="session", autouse=True)
def session():
    raygo.shutdown()
    raygo.init(num_cpus=4, num_gpus=0, log_to_driver=False, object_store_memory=200 * 2**20, _system_config={"infeasible_timeout_s": 1.0})
    yield
    raygo.shutdown()
