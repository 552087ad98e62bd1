"""What is to be seen of a run."""
import os
import pty
import subprocess
import sys
import textwrap
import time

import pytest

import raygo.train.torch
from raygo import train
from raygo.train import DataParallelTrainer, RunConfig, ScalingConfig, UserCallback
from raygo.train._show import html, shares
from raygo.train.torch import TorchTrainer

SCRIPT = """
    import sys
    import raygo
    from raygo import train
    from raygo.train import DataParallelTrainer, RunConfig, ScalingConfig

    def loop(config):
        for i in range(3):
            train.report({"loss": 1 / (i + 1)})

    raygo.init(num_cpus=2)
    DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=sys.argv[1])).fit()
"""


def test_lines_where_there_is_no_terminal(tmp_path, capfd):
    def loop():
        for i in range(2):
            train.report({"i": i, "loss": 0.25})

    for verbose, lines in ((0, 0), (2, 4)):
        DataParallelTrainer(loop, run_config=RunConfig(storage_path=str(tmp_path), verbose=verbose)).fit()
        said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("DataParallelTrainer_")]
        assert len(said) == lines
    assert "1 worker(s) started (pid " in said[0] and "2 report(s)" in said[2] and "i=1, loss=0.25" in said[2] and "finished" in said[3]


def test_a_table_in_a_terminal(tmp_path):
    pytest.importorskip("rich")
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(SCRIPT))
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stdout=slave, stderr=slave,
                               env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"})
    os.close(slave)
    shown = b""
    try:
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:      # the other end is closed
                break
            if not part:
                break
            shown += part
    finally:
        process.wait(60)
        os.close(master)
    assert process.returncode == 0
    last = shown.decode().rsplit("finished, 3 report(s)", 1)[1]
    assert "rank" in last and "communication" in last and last.count("done") == 2 and "0.33333" in last


def test_a_run_as_html(tmp_path):
    seen = []

    class Watch(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            seen.append(html(run_context.callbacks._view))

    DataParallelTrainer(lambda: train.report({"a<b": 7}), run_config=RunConfig(storage_path=str(tmp_path), verbose=0, callbacks=[Watch()])).fit()
    assert "<th>a&lt;b</th>" in seen[0] and "<td>7</td>" in seen[0] and "<th>rank</th>" in seen[0]


@pytest.mark.timeout(300)
def test_where_the_time_of_a_step_goes(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("RAYGO_TRAIN_PROFILE", "1")

    def loop(config):
        from torch.utils.data import DataLoader, Dataset

        class Slow(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                time.sleep(0.05)
                return torch.ones(4)

        model = raygo.train.torch.prepare_model(torch.nn.Linear(4, 4))
        loader = raygo.train.torch.prepare_data_loader(DataLoader(Slow(), batch_size=2))
        assert isinstance(loader, DataLoader) and len(loader) == 2
        for batch in loader:
            model(batch).sum().backward()
        train.report({})

    metrics = TorchTrainer(loop, train_loop_config={}, scaling_config=ScalingConfig(num_workers=2),
                           run_config=RunConfig(storage_path=str(tmp_path), verbose=0)).fit().metrics
    assert 0.2 <= metrics["time_data_s"] and metrics["time_compute_s"] > 0 and metrics["time_communication_s"] > 0
    assert shares((10.0, 5.0, 2.0)) == ("50 %", "30 %", "20 %") and shares(None) == ("", "", "")
