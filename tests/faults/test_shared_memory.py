"""Disks without room at start, many processes on one arena, readers that stop, drivers that fork or are killed."""
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from test_kill import alive, left_in_store, until

import raygo
from raygo._calls import call
from raygo.exceptions import GetTimeoutError, OutOfDiskError, RayActorError, WorkerCrashedError

MB = 2**20

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")


def finished(process, timeout=100):
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, (process.returncode, out[-2000:], errors[-3000:])
    return out


@pytest.fixture
def disk(tmp_path):
    """Mounts small disks."""
    made = []

    def mount(size, name="disk"):
        path = tmp_path / name
        path.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], check=False).returncode:
            pytest.skip("nothing can be mounted here")
        made.append(path)
        return path

    yield mount
    raygo.shutdown()
    for path in made:
        subprocess.run(["umount", "-l", path], check=True)


def fill(folder):
    with open(folder / "filling", "wb", buffering=0) as f, pytest.raises(OSError, match="No space"):
        while True:
            f.write(bytes(4096))


@root_only
def test_dev_shm_is_full_at_start(driver):
    """The arena does not live there."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mounts of one's own to be had here")
    process = driver("""
        import os, subprocess
        libc = __import__("ctypes").CDLL(None, use_errno=True)
        assert libc.unshare(0x20000) == 0   # CLONE_NEWNS: mounts of its own
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "/dev/shm"], check=True)
        with open("/dev/shm/filling", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        import numpy as np
        import raygo

        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 2**20)

        @raygo.remote
        def total(a):
            return float(a.sum())

        ref = raygo.put(np.ones(5_000_000))
        assert raygo.get([total.remote(ref), total.remote(np.ones(1_000_000))], timeout=60) == [5_000_000, 1_000_000]
        raygo.shutdown()
        assert os.listdir("/dev/shm") == ["filling"], os.listdir("/dev/shm")
        print("fine")
    """)
    assert finished(process) == "fine\n"


@root_only
def test_the_session_folder_is_on_a_full_disk(disk):
    full = disk("64k")
    fill(full)
    raygo.shutdown()
    for _ in range(2):
        with pytest.raises(OutOfDiskError, match=rf"{full}.*no space left on device.* 0 KiB free of 64 KiB.*RAYGO_TMPDIR"):
            raygo.init(num_cpus=1, include_dashboard=False, _temp_dir=str(full))
        assert not raygo.is_initialized()
    (full / "filling").unlink()
    raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * MB, log_to_driver=False, _temp_dir=str(full))
    fill(full)   # from now on neither logs nor spilled objects have room

    @raygo.remote
    def loud(a):
        print("x" * 100_000)
        return float(a.sum())

    assert raygo.get([loud.remote(np.ones(100_000)) for _ in range(5)], timeout=60) == [100_000] * 5
    refs = []
    with pytest.raises(OutOfDiskError, match=f"{full}.*no space left"):
        for _ in range(20):
            refs.append(raygo.put(np.ones(3 * MB // 8)))
    refs.clear()
    assert raygo.get(loud.remote(np.ones(100_000)), timeout=60) == 100_000
    raygo.shutdown()


def mapped(pid, size):
    """How often a process maps an arena of this size, and how many bytes of it have memory there."""
    often = resident = 0
    try:
        with open(f"/proc/{pid}/smaps") as f:
            inside = False
            for line in f:
                if line[0] in "0123456789abcdef" and "-" in line.split()[0]:
                    begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                    inside = end - begin == size and line.split()[1][3] == "s"
                    often += inside
                elif inside and line.startswith("Rss:"):
                    resident += int(line.split()[1]) << 10
    except (OSError, IndexError):
        pass
    return often, resident


@pytest.mark.timeout(600)
def test_an_arena_in_64_processes(runtime):
    @raygo.remote(num_cpus=0)
    class Reader:
        def read(self, refs):
            self.views = [raygo.get(r) for r in refs]
            self.own = raygo.put(self.views[0][:100_000])
            return os.getpid(), float(sum(v.sum() for v in self.views)), [self.own]

    size = raygo.cluster_resources()["object_store_memory"]
    call("modules.preload", {"modules": ["numpy"]})
    shared = [raygo.put(np.full(1_000_000, i)) for i in range(4)]   # 32 MB
    actors = [Reader.remote() for _ in range(64)]
    answers = raygo.get([a.read.remote(shared) for a in actors], timeout=300)
    pids = {pid for pid, _, _ in answers}
    assert len(pids) == 64 and {total for _, total, _ in answers} == {6_000_000}
    for _, _, (own,) in answers:
        assert raygo.get(own, timeout=60)[99_999] == 0
    stats = call("store.stats")
    assert stats["used"] < 64 * 1_000_000 + 40 * MB, stats
    assert stats["pinned"] >= 32_000_000
    for pid in pids:
        often, resident = mapped(pid, size)
        assert 1 <= often <= 2 and resident < 120 * MB, (pid, often, resident / MB)
    half = sorted(pids)[::2]
    for pid in half:
        os.kill(pid, signal.SIGKILL)
    for a in actors:
        try:
            raygo.get(a.read.remote(shared), timeout=60)
        except RayActorError:
            pass
    del actors, a, answers, own, shared
    assert until(lambda: not left_in_store()), left_in_store()
    assert until(lambda: not any(mapped(pid, size)[0] for pid in pids))


def test_a_stopped_reader_keeps_its_pins_and_nothing_else(driver):
    """A process that is stopped while it holds most of the store: others go on beside it."""
    process = driver("""
        import os, signal
        import numpy as np
        import raygo
        from raygo._calls import call

        MB = 2**20
        raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=24 * MB, log_to_driver=False)

        @raygo.remote(num_cpus=0)
        class Holder:
            def hold(self, refs):
                self.views = raygo.get(refs)
                return os.getpid()

        @raygo.remote
        def make(i, size):
            return np.full(size // 8, i)

        @raygo.remote
        def first(a):
            return int(a[0])

        held = [raygo.put(np.full(2 * MB // 8, i)) for i in range(8)]
        holder = Holder.remote()
        pid = raygo.get(holder.hold.remote(held), timeout=60)
        os.kill(pid, signal.SIGSTOP)
        for _ in range(3):
            refs = [make.remote(i, 2 * MB) for i in range(12)]
            assert raygo.get([first.remote(r) for r in refs], timeout=100) == list(range(12))
            assert [int(raygo.get(r, timeout=60)[-1]) for r in refs] == list(range(12))
        assert raygo.get(make.remote(1, 12 * MB), timeout=100)[-1] == 1   # it does not fit beside what is pinned
        os.kill(pid, signal.SIGCONT)
        assert raygo.get(holder.hold.remote(held[:1]), timeout=60) == pid   # lets go of the rest
        assert raygo.get(make.remote(1, 12 * MB), timeout=100)[0] == 1
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        raygo.shutdown()
        print("fine")
    """)
    assert finished(process) == "fine\n"


@root_only
def test_a_driver_killed_while_it_spills_gives_the_disk_back(driver, disk):
    small = disk("256m")
    free = lambda: os.statvfs(small).f_bfree  # noqa: E731
    before = free()
    for i in range(3):
        process = driver("""
            import sys
            import numpy as np
            import raygo

            raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=48 * 2**20, _object_spilling_directory=sys.argv[1])
            refs = []
            while True:
                refs.append(raygo.put(np.ones(2**20)))
                if len(refs) == 10:
                    print("spills", flush=True)
                refs = refs[-25:]
        """, small)
        assert process.stdout.readline() == "spills\n", process.stderr.read()
        time.sleep(0.07 * i)
        process.kill()
        process.wait(20)
        assert until(lambda: free() == before), (free(), before)
        assert os.listdir(small) == []


def test_a_fork_of_a_driver_that_holds_views(driver):
    """The child reads what its parent had, may not ask for more, and takes nothing from its parent when it ends, however it ends."""
    process = driver("""
        import gc, os, sys
        import numpy as np
        import raygo
        from raygo._calls import call

        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * 2**20)
        refs = [raygo.put(np.full(2**18, i)) for i in range(6)]   # 2 MiB each
        views = raygo.get(refs)
        for way in ("exit", "leave", "drop", "kill"):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    assert [int(v[-1]) for v in views] == list(range(6))
                    for use in (lambda: raygo.get(refs[0]), lambda: raygo.put(1), lambda: raygo.put(np.ones(10**6))):
                        try:
                            use()
                        except RuntimeError as error:
                            assert "fork" in str(error), error
                        else:
                            raise AssertionError("a fork used its parent's session")
                    code = 0
                    if way == "drop":
                        del views, refs
                        gc.collect()
                    elif way == "kill":
                        os.kill(os.getpid(), 9)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
                if way == "exit":
                    sys.exit(0)
                os._exit(code)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == (-9 if way == "kill" else 0), (way, status)
            assert call("store.stats")["pinned"] >= 6 * 2**21
        more = [raygo.put(np.full(2**18, 100 + i)) for i in range(20)]
        assert [int(v[7]) for v in views] == list(range(6))
        assert [int(raygo.get(r)[7]) for r in more] == list(range(100, 120))
        del views, refs, more
        import time
        end = time.monotonic() + 20
        while (call("store.stats")["used"] or call("store.stats")["spilled"]) and time.monotonic() < end:
            time.sleep(0.01)
        assert not call("store.stats")["used"], call("store.stats")
        raygo.shutdown()
        print("fine")
    """)
    assert finished(process) == "fine\n"


def test_many_threads_get_the_same_spilled_objects(driver):
    process = driver("""
        import threading, time
        import numpy as np
        import raygo
        from raygo._calls import call

        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * 2**20)
        refs = [raygo.put(np.full(2**18, i)) for i in range(30)]
        gone, bad = [], []

        def read(k):
            try:
                for i in range(60):
                    j = (7 * k + i * (1 + k % 3)) % 30
                    v = raygo.get(refs[j], timeout=90)
                    assert v[0] == v[-1] == j, (j, v[0], v[-1])
            except BaseException as error:
                bad.append(repr(error))

        threads = [threading.Thread(target=read, args=(k // 2,)) for k in range(16)]   # two read the same in the same order
        for t in threads: t.start()
        for t in threads: t.join()
        assert not bad, bad[:3]
        # Gets that give up while it is restored, and references that go meanwhile.
        for i in range(200):
            try:
                raygo.get(refs[i % len(refs)], timeout=0.0002 * (i % 7))
            except raygo.exceptions.GetTimeoutError:
                gone.append(i)
            if i % 5 == 0:
                refs[i % len(refs)] = raygo.put(np.full(2**18, i % len(refs)))
        assert gone, "no get was too slow"
        assert [int(raygo.get(r, timeout=90)[9]) for r in refs] == list(range(30))
        del refs, threads
        end = time.monotonic() + 20
        left = lambda: {k: v for k, v in call("store.stats").items() if k in ("objects", "arena_objects", "used", "pinned", "spilled", "waiting") and v}
        while left() and time.monotonic() < end:
            time.sleep(0.01)
        assert not left(), left()
        raygo.shutdown()
        print("fine")
    """)
    assert finished(process) == "fine\n"


def test_objects_that_go_while_workers_restore_them(runtime, tmp_path):
    """A worker that is reading what is on disk is killed, or the last reference goes, in the middle of it."""
    raygo.shutdown()
    raygo.init(num_cpus=3, include_dashboard=False, object_store_memory=24 * MB, log_to_driver=False)

    @raygo.remote(max_retries=0)
    def read(refs, note):
        note.write_text(str(os.getpid()))
        while refs:
            for r in refs:
                try:
                    raygo.get(r, timeout=0.005)
                except GetTimeoutError:
                    pass

    for i in range(6):
        refs = [raygo.put(np.full(2**18, k)) for k in range(20)]
        notes = [tmp_path / f"{i}-{k}" for k in range(3)]
        tasks = [read.remote(refs[k * 5:(k + 2) * 5], notes[k]) for k in range(3)]
        assert until(lambda notes=notes: all(n.exists() and n.read_text() for n in notes), 60)
        time.sleep(0.02 * i)
        pids = [int(n.read_text()) for n in notes]
        del refs
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for t in tasks:
            with pytest.raises(WorkerCrashedError):
                raygo.get(t, timeout=60)
        del tasks, t
        assert until(lambda: not left_in_store(), 30), left_in_store()
        assert not any(map(alive, pids))
