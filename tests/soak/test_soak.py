"""The soak for as long as CI has.  By hand for ten minutes: RAYGO_SOAK_SECONDS=600, or soak.py itself."""
import os
import subprocess
import sys

import pytest

SECONDS = float(os.environ.get("RAYGO_SOAK_SECONDS", "30"))
SOAK = os.path.join(os.path.dirname(__file__), "soak.py")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("part, how", [
    pytest.param(2, [], id="one driver"),
    pytest.param(3, ["--drivers", "2"], id="two drivers"),
    pytest.param(6, ["--drivers", "2", "--kill-first"], id="the engine killed"),
])
def test_nothing_is_lost_and_nothing_stays(part, how):
    command = [sys.executable, SOAK, "--seconds", str(SECONDS / part), *how]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:]
