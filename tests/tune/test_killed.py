"""A driver that is killed again and again: the search comes to the results that it would have come to."""
from __future__ import annotations

import base64
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from raygo.tune import ExperimentAnalysis

DRIVER = """
import os, signal, sys, tempfile, threading, time
import raygo
from raygo import tune

def work(config):
    start, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as d:
            start = int(open(os.path.join(d, "n")).read()) + 1
    for n in range(start, 8):
        time.sleep(0.02)
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "n"), "w") as file:
                file.write(str(n))
            tune.report({"n": n, "value": config["x"] * (n + 1), "start": start}, checkpoint=tune.Checkpoint.from_directory(d))

def drive(folder, delay):
    raygo.init(num_cpus=2, log_to_driver=False)
    path = os.path.join(folder, "killed")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable=work)
    else:
        tuner = tune.Tuner(work, param_space={"i": tune.grid_search(list(range(10))), "x": tune.uniform(0, 1)},
                           tune_config=tune.TuneConfig(metric="value", mode="max", search_alg=tune.search.BasicVariantGenerator(random_state=5)),
                           run_config=tune.RunConfig(storage_path=folder, name="killed", verbose=0,
                                                     checkpoint_config=tune.CheckpointConfig(num_to_keep=2)))
    if delay:
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
    grid = tuner.fit()
    assert len(grid) == 10 and grid.num_errors == 0
    raygo.shutdown()

# Each driver is a fork of this process, which has imported what they need and started nothing.
for delay in map(float, sys.argv[2:]):
    pid = os.fork()
    if not pid:
        drive(sys.argv[1], delay)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def drive(folder: Path, *delays: float) -> list[int]:
    """Run the search with one driver after the other, each killed so many seconds after it began, or never; how they ended."""
    folder.mkdir(exist_ok=True)
    (folder / "driver.py").write_text(DRIVER)
    done = subprocess.run([sys.executable, str(folder / "driver.py"), str(folder), *map(str, delays)], text=True, capture_output=True, timeout=500,
                          env={**os.environ, "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "0"})
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The search, run by one driver."""
    folder = tmp_path_factory.mktemp("whole")
    assert drive(folder, 0) == [0]
    return folder


def outcome(folder: Path) -> dict[int, tuple[float, int]]:
    analysis = ExperimentAnalysis(str(folder / "killed"))
    assert all(t.status == "TERMINATED" for t in analysis.trials)
    for trial in analysis.trials:
        assert [row["n"] for row in analysis.reports(trial)] == list(range(8))
        with trial.checkpoint.as_directory() as d:
            assert Path(d, "n").read_text() == "7"
        assert len([name for name in os.listdir(trial.path) if name.startswith("checkpoint_")]) == 2
    return {t.config["i"]: (t.last_result["value"], t.last_result["n"]) for t in analysis.trials}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_kills_change_nothing(tmp_path, whole):
    moments = random.Random(11)
    ends = drive(tmp_path, *(moments.uniform(0.02, 0.6) for _ in range(10)), 0)
    # On a fast machine the search may end between two deaths; what is restored is then whole already.
    assert len(ends) == 11 and set(ends) == {0, -signal.SIGKILL} and ends.count(-signal.SIGKILL) >= 3 and ends[-1] == 0
    assert outcome(tmp_path) == outcome(whole)


def test_a_torn_record_ends_the_log(tmp_path, whole):
    """A snapshot from before, and a log whose last record was being written: what is whole counts."""
    folder = tmp_path / "killed"
    shutil.copytree(whole / "killed", folder)
    (state,) = folder.glob("experiment_state-*.json")
    body = json.loads(state.read_text())
    body["pickled"] = base64.b64encode(zlib.compress(pickle.dumps([]))).decode()
    body["log_offset"] = 0                                   # as it was before the first trial
    state.write_text(json.dumps(body))
    log = folder / body["log"]
    whole = {t.trial_id: t.last_result["n"] for t in ExperimentAnalysis(str(folder)).trials}
    assert len(whole) == 10 and set(whole.values()) == {7}
    data = log.read_bytes()
    log.write_bytes(data[:-3])
    torn = ExperimentAnalysis(str(folder)).trials
    assert len(torn) == 10 and [t.status for t in torn].count("TERMINATED") == 9
    log.write_bytes(data[:len(data) // 2] + b"\0" * 50)
    assert 0 < len(ExperimentAnalysis(str(folder)).trials) <= 10
