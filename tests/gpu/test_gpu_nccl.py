"""raygo's path to NCCL, with a library that records what is called in place of NCCL and of CUDA's driver."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that stands for both."""
    path = tmp_path_factory.mktemp("nccl") / "fake.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(ROOT / "collective/nccl/testdata/nccl.c")], check=True)
    return str(path)


def run(code: str, tmp_path: Path, **env: str) -> tuple[str, list[str]]:
    """Run code in a process of its own; return its output and the calls."""
    prelude = """
    from raygo._nccl import NcclGroup, candidates
    from raygo._binding import GroupError
    class Store(dict):
        def set(self, key, value): self[key] = value
        def get(self, key, timeout):
            if key not in self: raise TimeoutError(key)
            return self[key]
    """
    record = tmp_path / "calls"
    record.touch()
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)], env={**os.environ, "RECORD": str(record), **env},
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in record.read_text().splitlines() if not line.startswith(("cuEventDestroy", "cuCtxSet"))]


def test_calls_reach_nccl(fake, tmp_path):
    code = """
    store = Store()
    group = NcclGroup("g", 0, 2, store, timeout=60)
    assert len(store["g/nccl"]) == 128 and group.broken() is None
    group.run("allreduce", 0x10, 0x20, 5, 10, stream=1)
    group.group_start()
    group.run("send", 0x10, 0, 5, 10, root=1, stream=2)
    group.run("recv", 0, 0x20, 5, 10, root=1, stream=2)
    group.group_end(2)
    group.close()
    group.close()
    """
    _, calls = run(code, tmp_path, RAYGO_NCCL_LIBRARY=fake, RAYGO_CUDA_LIBRARY=fake)
    assert calls == [
        "ncclGetUniqueId()", "ncclCommInitRankConfig(2, ii, 0, size 24 magic cafebeef version 21400 blocking 0)",
        "ncclAllReduce(0x10, 0x20, 5, 7, 0, 0xc0, 0x1)", "cuEventCreate(2)", "cuEventRecord(0xe0, 0x1)",
        "ncclGroupStart()", "ncclSend(0x10, 5, 7, 1, 0xc0, 0x2)", "ncclRecv(0x20, 5, 7, 1, 0xc0, 0x2)", "ncclGroupEnd()", "cuEventCreate(2)",
        "cuEventRecord(0xe0, 0x2)", "ncclCommFinalize(0xc0)", "ncclCommDestroy(0xc0)",
    ]


def test_faults_are_group_errors(fake, tmp_path):
    code = """
    group = NcclGroup("g", 0, 2, Store(), timeout=60)
    group.abort("rank 1 died")
    try:
        group.run("allreduce", 0x10, 0x20, 5, 10)
    except GroupError as error:
        print(error.code, error, group.broken())
    group.close()
    try:
        NcclGroup("g", 1, 2, Store(), timeout=0.1)
    except TimeoutError as error:
        print("the store's own:", error)
    """
    out, calls = run(code, tmp_path, RAYGO_NCCL_LIBRARY=fake, RAYGO_CUDA_LIBRARY=fake)
    assert out.splitlines() == ["36 rank 1 died rank 1 died", "the store's own: g/nccl"]
    assert calls[-1] == "ncclCommAbort(0xc0)"


def test_without_a_driver_events_are_left_out(fake, tmp_path):
    code = """
    group = NcclGroup("g", 0, 1, Store())
    group.run("allreduce", 0x10, 0x20, 5, 10)
    group.close()
    """
    _, calls = run(code, tmp_path, RAYGO_NCCL_LIBRARY=fake, RAYGO_CUDA_LIBRARY="/absent.so")
    assert [c for c in calls if c.startswith("cu")] == []


def test_without_nccl_the_error_says_what_to_install(tmp_path):
    code = """
    import raygo._nccl
    raygo._nccl.candidates = lambda: []
    try:
        NcclGroup("g", 0, 1, Store())
    except GroupError as error:
        print(error)
    """
    out, _ = run(code, tmp_path, RAYGO_NCCL_LIBRARY="/absent/libnccl.so.2")
    assert "/absent/libnccl.so.2" in out and "nvidia-nccl-cu12" in out
