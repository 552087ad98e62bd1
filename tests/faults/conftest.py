"""Faults are made, not mocked: processes are killed, sockets fed with nonsense, users changed."""
import os
import subprocess
import sys
import textwrap

import pytest

import raygo


@pytest.fixture
def runtime():
    """A runtime of its own for the test, two CPUs, output not shown."""
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    yield raygo
    raygo.shutdown()


@pytest.fixture
def driver(tmp_path):
    """Starts Python source as a driver of its own; returns the running process (stdout and stderr are pipes)."""
    started = []

    def start(source, *args, **env):
        path = tmp_path / f"driver{len(started)}.py"
        path.write_text(textwrap.dedent(source))
        process = subprocess.Popen([sys.executable, "-u", str(path), *map(str, args)], cwd=tmp_path, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                   env={**os.environ, **env})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
