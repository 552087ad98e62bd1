"""The files that loggers write, read by who they are for."""
from __future__ import annotations

import csv
import json
import math
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from raygo import cloudpickle
from raygo.tune.experiment.trial import Trial
from raygo.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from raygo.tune.utils.pickling import dumps


class Folder:
    def __init__(self, path: Path) -> None:
        self.local_path = self.path = str(path)


def trial(folder: Path, **config) -> Trial:
    made = Trial("f", trial_id="t", config=config, evaluated_params=config, storage=Folder(folder))
    made.relative_logdir = "t"
    made.init_local_path()
    return made


def test_events_are_read_by_tensorboard(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    logger, one = TBXLoggerCallback(), trial(tmp_path, lr=0.5, on=True, name="é" * 100, deep={"n": 3}, nothing=None)
    logger.log_trial_start(one)
    values = [0.25, -1e-3, math.inf, math.nan, 1e300, 7]
    for step, value in enumerate(values, 1):
        logger.log_trial_result(step, one, {"loss": value, "deep": {"x": step}, "text": "no number", "training_iteration": step * 300})
    logger.log_trial_end(one)
    events = accumulators.EventAccumulator(str(tmp_path / "t"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"ray/tune/loss", "ray/tune/deep/x"}
    losses = events.Scalars("ray/tune/loss")
    assert [e.step for e in losses] == [300 * step for step in range(1, 7)]
    assert [e.value for e in losses][:2] == [0.25, pytest.approx(-1e-3)] and [str(e.value) for e in losses][2:] == ["inf", "nan", "inf", "7.0"]
    told = HParamsPluginData.FromString(events.summary_metadata["_hparams_/session_start_info"].plugin_data.content).session_start_info.hparams
    assert told["lr"].number_value == 0.5 and told["on"].bool_value is True and told["name"].string_value == "é" * 100
    assert told["deep/n"].number_value == 3 and told["nothing"].string_value == "None"


def test_a_metric_that_comes_late_gets_a_column(tmp_path):
    logger, one = CSVLoggerCallback(), trial(tmp_path)
    logger.log_trial_result(1, one, {"a": 1, "text": 'with "quotes", commas\nand lines', "config": {}})
    logger.log_trial_result(2, one, {"a": 2, "deep": {"b": 3}})
    logger.log_trial_end(one)
    logger.log_trial_start(one)              # after a restart
    logger.log_trial_result(3, one, {"deep": {"b": 4}, "c": 5})
    logger.on_experiment_end([one])
    with open(tmp_path / "t" / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["a", "text", "deep/b", "c"] and rows[0]["text"] == 'with "quotes", commas\nand lines'
    assert [(row["a"], row["deep/b"], row["c"]) for row in rows] == [("1", "", ""), ("2", "3", ""), ("", "4", "5")]


def test_reports_and_configs_are_read_back(tmp_path):
    logger, one = JsonLoggerCallback(), trial(tmp_path, lr=0.1, call=len)
    logger.log_trial_start(one)
    logger.log_trial_result(1, one, {"a": {1, 2}, "b": math.nan, (1, 2): "left out"})
    one.set_config({"lr": 0.2})
    logger.log_trial_result(2, one, {"a": 1})
    logger.log_trial_end(one)
    lines = (tmp_path / "t" / "result.json").read_text().splitlines()
    assert [json.loads(line).get("a") for line in lines] == [[1, 2], 1] and "left out" not in lines[0]
    assert json.loads((tmp_path / "t" / "params.json").read_text()) == pickle.loads((tmp_path / "t" / "params.pkl").read_bytes()) == {"lr": 0.2}


def test_pickles_have_a_scripts_functions_in_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom raygo.tune.utils.pickling import dumps\ndef mine(x): return x + 1\n"
                      "sys.stdout.buffer.write(dumps({'f': mine, 'n': [1, (2.5, None)]}))")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, timeout=100)
    assert cloudpickle.loads(done.stdout)["f"](1) == 2
    plain = {"a": [1, (2.5, None)], 3: b"x", "deep": {"t": True}}
    assert dumps(plain) == pickle.dumps(plain, 5) and pickle.loads(dumps(plain)) == plain
