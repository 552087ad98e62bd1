"""A driver that is killed again and again: the search comes to the results that it would have come to."""
from __future__ import annotations

import base64
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from raygo.tune import ExperimentAnalysis

DRIVER = """
import os, random, signal, sys, tempfile, threading, time
import raygo
from raygo import tune

folder, delay = sys.argv[1], float(sys.argv[2])

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
print(len(grid), grid.num_errors)
"""


def drive(script: Path, folder: Path, delay: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), str(folder), str(delay)], text=True, capture_output=True, timeout=100,
                          env={**os.environ, "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "0"})


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
def test_ten_kills_change_nothing(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    whole, killed = tmp_path / "whole", tmp_path / "often"
    done = drive(script, whole, 0)
    assert done.returncode == 0 and done.stdout.split() == ["10", "0"], done.stderr
    moments = random.Random(11)
    deaths = 0
    for _ in range(10):
        done = drive(script, killed, moments.uniform(0.02, 0.6))
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        deaths += 1
    assert deaths >= 3
    done = drive(script, killed, 0)
    assert done.returncode == 0, done.stderr
    assert outcome(killed) == outcome(whole)


def test_a_torn_record_ends_the_log(tmp_path):
    """A snapshot from before, and a log whose last record was being written: what is whole counts."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    done = drive(script, tmp_path, 0)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "killed"
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
