"""Spilling: when it begins, and what becomes of objects when the disk fails them."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

import raygo
from raygo import _calls
from raygo.exceptions import ObjectLostError

MB = 2**20


@contextlib.contextmanager
def session(**options):
    raygo.shutdown()
    options = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 32 * MB, "log_to_driver": False} | options
    try:
        yield raygo.init(**options)
    finally:
        raygo.shutdown()


@contextlib.contextmanager
def disk(folder, options):
    os.makedirs(folder, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def stats():
    return _calls.call("store.stats", None)


def eventually(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, stats()
        time.sleep(0.01)


def array(i, size=2 * MB):
    return np.full(size // 8, i, dtype=np.float64)


def put(count, size=2 * MB):
    return [raygo.put(array(i, size)) for i in range(count)]


def spill_files(folder):
    """The engine runs in this process, so its files without names are among our descriptors."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder)):
                found.append(f"/proc/self/fd/{fd}")
    return found


def test_nothing_is_written_below_the_threshold_and_room_is_ready_above():
    with session():
        refs = put(24, MB)
        assert stats()["spilled_total"] == 0
        refs += put(3, MB)
        eventually(lambda: stats()["clean"] > 0)
        assert stats()["spilled"] == 0  # copied, and still in memory
        assert [raygo.get(r)[0] for r in refs] == [*range(24), 0, 1, 2]


@pytest.mark.parametrize("by", ["config", "variable"])
def test_threshold_and_folder_are_rays_settings(by, tmp_path, monkeypatch):
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    config = json.dumps({"type": "filesystem", "params": {"directory_path": folders}})
    settings = {"object_spilling_threshold": 0.2, "object_spilling_config": config}
    options = {"_system_config": settings}
    if by == "variable":
        options = {}
        for key, value in settings.items():
            monkeypatch.setenv(f"RAY_{key}", str(value))
    with session(**options):
        refs = put(6)
        eventually(lambda: stats()["clean"] >= 2 * MB)
        put(16)
        assert os.path.isdir(folders[0])
        assert os.path.isdir(folders[1])
        assert raygo.get(refs[0])[0] == 0


def test_a_wrong_spilling_config_is_refused():
    with pytest.raises(ValueError, match="directory_path"), session(_system_config={"object_spilling_config": "{}"}):
        pass
    with pytest.raises(ValueError, match="smart_open"), session(
        _system_config={"object_spilling_config": {"type": "smart_open", "params": {"directory_path": "s3://x"}}}
    ):
        pass


@pytest.mark.parametrize("damage", ["flipped", "truncated"])
def test_a_damaged_copy_is_an_error_of_that_object(damage, tmp_path):
    with session(_object_spilling_directory=str(tmp_path)):
        refs = put(30)
        eventually(lambda: stats()["spilled"] >= 20 * MB)
        assert spill_files(tmp_path)
        for path in spill_files(tmp_path):
            if damage == "truncated":
                os.truncate(path, 4096)
                continue
            with open(path, "r+b", buffering=0) as file:
                for at in range(0, os.fstat(file.fileno()).st_size, MB):
                    file.seek(at + 70000)
                    file.write(b"oops")
        lost = kept = 0
        for i, ref in enumerate(refs):
            try:
                assert raygo.get(ref, timeout=30)[-1] == i
                kept += 1
            except ObjectLostError as error:
                assert "2097" in str(error)
                assert str(tmp_path) in str(error)
                lost += 1
        assert lost >= 10
        assert kept >= 10
        del ref, refs
        assert raygo.get(raygo.put(array(3)))[5] == 3
        eventually(lambda: stats()["disk_used"] == 0)


def test_a_folder_that_fills_up_or_is_read_only_is_passed(tmp_path):
    with disk(tmp_path / "small", "size=6m") as small, disk(tmp_path / "ro", "size=64m") as frozen, disk(tmp_path / "large", "size=64m") as large:
        subprocess.run(["mount", "-o", "remount,ro", frozen], check=True)
        with session(_object_spilling_directory=[small, frozen, large]):
            refs = put(30)
            used = {folder: os.statvfs(folder) for folder in (small, large)}
            assert (used[small].f_blocks - used[small].f_bfree) * used[small].f_frsize >= 4 * MB
            assert (used[large].f_blocks - used[large].f_bfree) * used[large].f_frsize >= 16 * MB
            assert [raygo.get(r)[-1] for r in refs] == list(range(30))
            del refs
            eventually(lambda: stats()["disk_used"] == 0)
            assert os.statvfs(large).f_bfree == used[large].f_blocks


def test_a_folder_that_is_deleted_is_made_again(tmp_path):
    folder = tmp_path / "spill"
    with session(_object_spilling_directory=str(folder)):
        refs = put(20)
        shutil.rmtree(folder)
        refs += put(20)
        assert [raygo.get(r)[-1] for r in refs] == [*range(20), *range(20)]


def test_a_writer_that_is_killed_leaves_no_file(tmp_path):
    """It has been given a file for a result larger than the store, and dies before that is whole."""

    with session(_object_spilling_directory=str(tmp_path)):
        @raygo.remote(max_retries=0)
        def make():
            return array(1, 48 * MB)

        pid = raygo.get(raygo.remote(os.getpid).remote())
        for delay in (0.0, 0.01, 0.02, 0.04, 0.08):
            ref = make.remote()
            time.sleep(delay)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(raygo.exceptions.RayError):
                raygo.get(ref, timeout=30)
            del ref
            pid = raygo.get(raygo.remote(os.getpid).remote())
        eventually(lambda: stats()["files"] == 0 and stats()["disk_used"] == 0 and stats()["used"] == 0)
        assert raygo.get(make.remote())[-1] == 1


def test_views_of_files_are_let_go_of(tmp_path):
    with session(_object_spilling_directory=str(tmp_path)):
        ref = raygo.put(array(5, 48 * MB))
        view = raygo.get(ref)[10:20]
        del ref
        assert list(view) == [5.0] * 10
        with open("/proc/self/maps") as maps:
            assert str(tmp_path) in maps.read()
        del view
        eventually(lambda: stats()["files"] == 0 and stats()["disk_used"] == 0)
        with open("/proc/self/maps") as maps:
            assert str(tmp_path) not in maps.read()


def test_arguments_of_queued_tasks_come_back_before_a_process_is_free(tmp_path):
    @raygo.remote
    def busy(path):
        with open(path) as pipe:
            return pipe.read()

    @raygo.remote
    def last(*arrays):
        return [float(a[-1]) for a in arrays]

    with session(num_cpus=1):
        refs = put(24)
        eventually(lambda: stats()["clean"] > 2 * MB)
        before = stats()["restored_total"]
        os.mkfifo(tmp_path / "pipe")
        first = busy.remote(str(tmp_path / "pipe"))
        second = last.remote(*refs[:2])
        eventually(lambda: stats()["restored_total"] >= before + 4 * MB)
        with open(tmp_path / "pipe", "w") as pipe:
            pipe.write("done")
        assert raygo.get([first, second], timeout=30) == ["done", [0.0, 1.0]]


def test_a_reader_without_descriptors_is_told_and_keeps_no_pin():
    """A value that is larger than the store is mapped from its file, which takes a descriptor for a moment."""

    @raygo.remote
    def read(refs):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            raygo.get(refs[0])
            text = "no error"
        except MemoryError as error:
            text = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return text, float(raygo.get(refs[0]).sum())

    with session():
        big = raygo.put(array(1, 40 * MB))
        text, total = raygo.get(read.remote([big]))
        assert "ulimit -n" in text
        assert total == 40 * MB / 8
        assert stats()["files"] >= 40 * MB
        del big
        eventually(lambda: stats()["files"] == 0)


def test_an_argument_that_cannot_be_mapped_fails_its_task_only():
    with session(num_cpus=1):
        large = raygo.put(array(1, 64 * MB))  # twice the store: it lies in a file

        @raygo.remote
        class Narrow:
            def limit(self):
                with open("/proc/self/statm") as f:
                    size = int(f.read().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (size + 40 * MB, resource.RLIM_INFINITY))
                return os.getpid()

            def widen(self):
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                return os.getpid()

            def read(self, value, other=None):
                return value[-1]

            def items(self, value):
                yield value[-1]

        actor = Narrow.remote()
        small = raygo.put(array(2))
        assert raygo.get(actor.read.remote(small)) == 2  # what it imports is there
        pid = raygo.get(actor.limit.remote())
        with pytest.raises(MemoryError, match=rf"67108\d+ bytes lies in a file .* \(pid {pid}\) cannot map it: Cannot allocate memory.*ulimit -v"):
            raygo.get(actor.read.remote(large, small))
        with pytest.raises(MemoryError, match="cannot map it"):
            raygo.get(next(actor.items.options(num_returns="streaming").remote(large)))
        assert raygo.get(actor.read.remote(small)) == 2
        assert raygo.get(actor.widen.remote()) == pid
        assert raygo.get(actor.read.remote(large, small)) == 1
        del large, small, actor
        eventually(lambda: stats()["used"] == 0 and stats()["files"] == 0)
