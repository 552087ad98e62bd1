"""GPUs as a resource: found by a library that only pretends, and shown to tasks through CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import raygo

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A libnvidia-ml with two A100s."""
    path = tmp_path_factory.mktemp("nvml") / "nvml.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(ROOT / "engine/gpu/testdata/nvml.c")], check=True)
    return str(path)


@pytest.fixture
def machine(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Environment of a machine with the two; ends the session afterwards."""
    monkeypatch.setenv("RAYGO_NVML_LIBRARY", library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield monkeypatch
    raygo.shutdown()


def shown() -> tuple[str | None, list, dict]:
    """What a task sees of GPUs."""
    return os.environ.get("CUDA_VISIBLE_DEVICES"), raygo.get_gpu_ids(), raygo.get_runtime_context().get_accelerator_ids()


def test_found_with_their_kind(machine):
    raygo.init(num_cpus=2, log_to_driver=False)
    total = raygo.cluster_resources()
    assert total["GPU"] == 2 and total["accelerator_type:A100"] == 1
    assert raygo.get(raygo.remote(num_gpus=2, accelerator_type="A100")(shown).remote(), timeout=60)[:2] == ("0,1", [0, 1])


def test_only_the_visible_ones(machine):
    machine.setenv("CUDA_VISIBLE_DEVICES", "1")
    raygo.init(num_cpus=2, log_to_driver=False)
    assert raygo.cluster_resources()["GPU"] == 1
    assert raygo.get(raygo.remote(num_gpus=1)(shown).remote(), timeout=60)[:2] == ("1", [1])


def test_more_than_visible_is_refused(machine):
    machine.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(ValueError, match=r"2 GPU, but CUDA_VISIBLE_DEVICES contains \['1'\]"):
        raygo.init(num_cpus=1, num_gpus=2)


def test_visible_devices_of_a_machine_without_gpus(machine):
    machine.delenv("RAYGO_NVML_LIBRARY")
    machine.setenv("CUDA_VISIBLE_DEVICES", "0")
    raygo.init(num_cpus=1, log_to_driver=False)
    if not os.path.exists("/dev/nvidiactl"):
        assert raygo.cluster_resources().get("GPU", 0) == 0


def test_parts_share_one(machine):
    raygo.init(num_cpus=4, log_to_driver=False)

    @raygo.remote(num_gpus=0.5)
    class Half:
        def shown(self) -> tuple[str | None, list, dict]:
            return shown()

    halves = [Half.remote() for _ in range(4)]
    seen = raygo.get([half.shown.remote() for half in halves], timeout=60)
    assert sorted(s[0] for s in seen) == ["0", "0", "1", "1"]
    assert all(s[1] == [int(s[0])] and s[2]["GPU"] == [s[0]] for s in seen)


def test_noset_leaves_the_variable_alone(machine):
    raygo.init(num_cpus=2, log_to_driver=False)
    env = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    variable, ids, _ = raygo.get(raygo.remote(num_gpus=1, runtime_env=env)(shown).remote(), timeout=60)
    assert variable != "0" and ids == [0]


def test_more_than_there_are_fails(machine):
    raygo.init(num_cpus=2, log_to_driver=False, _system_config={"infeasible_timeout_s": 0.2})
    with pytest.raises(Exception, match=r"3 GPU"):
        raygo.get(raygo.remote(num_gpus=3)(shown).remote(), timeout=60)


def test_a_broken_driver_leaves_a_note(library, tmp_path):
    # In a process of its own: the engine keeps the environment that it was loaded with.
    code = """
import pathlib, raygo
folder = pathlib.Path(raygo.init(num_cpus=1, log_to_driver=False).address_info["session_dir"])
print(raygo.cluster_resources().get("GPU", 0), (folder / "logs" / "engine.log").read_text())
"""
    env = {**os.environ, "RAYGO_NVML_LIBRARY": library, "RECORD": str(tmp_path / "calls"), "FAIL": "nvmlInit_v2"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("0 ") and "Driver Not Loaded" in done.stdout
    assert (tmp_path / "calls").read_text().split() == ["nvmlInit_v2"]


def test_training_workers_of_a_node_see_each_others_gpus(machine, tmp_path):
    from raygo.train import RunConfig, ScalingConfig, report
    from raygo.train.backend import Backend, BackendConfig
    from raygo.train.data_parallel_trainer import DataParallelTrainer

    class Sharing(Backend):
        share_cuda_visible_devices = True

    class Config(BackendConfig):
        backend_cls = Sharing

    def loop():
        report({"visible": os.environ["CUDA_VISIBLE_DEVICES"], "own": raygo.get_gpu_ids()})

    raygo.init(num_cpus=2, log_to_driver=False)
    for config, visible in ((Config(), "0,1"), (None, "0")):
        result = DataParallelTrainer(loop, backend_config=config, scaling_config=ScalingConfig(num_workers=2, use_gpu=True),
                                     run_config=RunConfig(storage_path=str(tmp_path), name=f"run{visible}", verbose=0)).fit()
        assert result.metrics["visible"] == visible and result.metrics["own"] == [0]
