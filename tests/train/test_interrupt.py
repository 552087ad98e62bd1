"""Ctrl-C in the driver ends the training workers."""
import os
import signal
import subprocess
import sys
import textwrap
import time

LOOP = """
    import os, sys, time
    import raygo
    from raygo import train
    from raygo.train import DataParallelTrainer, RunConfig, ScalingConfig

    def loop(config):
        with open(os.path.join(config["folder"], str(os.getpid())), "w"):
            pass
        time.sleep(600)

    raygo.init(num_cpus=2, log_to_driver=False)
    try:
        DataParallelTrainer(loop, train_loop_config={"folder": sys.argv[1]}, scaling_config=ScalingConfig(num_workers=2),
                            run_config=RunConfig(storage_path=sys.argv[2])).fit()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(3)
"""


def test_ctrl_c_ends_the_workers(tmp_path):
    pids, script = tmp_path / "pids", tmp_path / "driver.py"
    pids.mkdir()
    script.write_text(textwrap.dedent(LOOP))
    driver = subprocess.Popen([sys.executable, str(script), str(pids), str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while len(os.listdir(pids)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        workers = [int(name) for name in os.listdir(pids)]
        assert len(workers) == 2
        driver.send_signal(signal.SIGINT)
        said, _ = driver.communicate(timeout=20)
        assert driver.returncode == 3 and "interrupted" in said
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]
    finally:
        driver.kill()
        driver.wait()
