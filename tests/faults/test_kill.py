"""Workers and drivers that die at bad moments."""
import os
import signal
import time

import numpy as np
import pytest

import raygo
from raygo._calls import call
from raygo.exceptions import ActorDiedError, RayActorError, WorkerCrashedError
from raygo.util.state import list_workers


def until(check, seconds=10.0):
    """Waits for something outside the runtime (a process, a file), which offers no event."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.01)
    return False


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def left_in_store():
    """What the store still has; empty when nothing."""
    stats = call("store.stats")
    return {k: stats[k] for k in ("objects", "arena_objects", "used", "pinned", "spilled", "waiting") if stats[k]}


@raygo.remote
def pid():
    return os.getpid()


def test_idle_worker_killed(runtime):
    first = raygo.get(pid.remote())
    os.kill(first, signal.SIGKILL)
    assert until(lambda: not alive(first))
    later = set(raygo.get([pid.remote() for _ in range(20)], timeout=20))
    assert first not in later and later


def test_running_worker_killed_is_retried(runtime, tmp_path):
    note = tmp_path / "pid"

    @raygo.remote(max_retries=1)
    def victim():
        if not note.exists():
            note.write_text(str(os.getpid()))
            time.sleep(60)
        return os.getpid()

    ref = victim.remote()
    assert until(lambda: note.exists() and note.read_text())
    os.kill(int(note.read_text()), signal.SIGKILL)
    begin = time.monotonic()
    assert raygo.get(ref, timeout=20) != int(note.read_text())
    assert time.monotonic() - begin < 5


def test_running_worker_killed_without_retries_names_the_signal(runtime):
    @raygo.remote(max_retries=0)
    def stops():
        import sys

        print("last words of the worker", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerCrashedError) as info:
        raygo.get(stops.remote(), timeout=20)
    text = str(info.value)
    assert "SIGKILL" in text and "stops" in text and "last words of the worker" in text


def test_segfault_names_the_signal(runtime):
    @raygo.remote(max_retries=0)
    def crash():
        import ctypes

        ctypes.string_at(0)

    with pytest.raises(WorkerCrashedError, match="SIGSEGV"):
        raygo.get(crash.remote(), timeout=20)
    assert raygo.get(pid.remote(), timeout=20)


def test_killed_in_the_middle_of_a_put(runtime, tmp_path):
    note = tmp_path / "pid"

    @raygo.remote(max_retries=0)
    def writer():
        note.write_text(str(os.getpid()))
        while True:
            raygo.put(np.ones(2_000_000))  # 16 MB, again and again

    ref = writer.remote()
    assert until(lambda: note.exists() and note.read_text())
    time.sleep(0.2)
    os.kill(int(note.read_text()), signal.SIGKILL)
    with pytest.raises(WorkerCrashedError):
        raygo.get(ref, timeout=20)
    del ref
    assert until(lambda: not left_in_store()), left_in_store()


def test_killed_in_the_middle_of_a_reply(runtime, tmp_path):
    note = tmp_path / "pid"

    @raygo.remote(max_retries=0)
    def stream():
        note.write_text(str(os.getpid()))
        while True:
            yield np.ones(100_000)

    items = stream.options(num_returns="streaming", _generator_backpressure_num_objects=20).remote()
    first = raygo.get(next(items))
    assert first.sum() == 100_000
    os.kill(int(note.read_text()), signal.SIGKILL)
    with pytest.raises(WorkerCrashedError):
        for ref in items:
            raygo.get(ref, timeout=20)
    del items, first, ref
    assert until(lambda: not left_in_store()), left_in_store()


def test_killed_actor_fails_its_calls_and_restarts(runtime):
    @raygo.remote(max_restarts=1)
    class Service:
        def pid(self):
            return os.getpid()

        def nap(self):
            time.sleep(60)

    a = Service.remote()
    first = raygo.get(a.pid.remote(), timeout=20)
    ref = a.nap.remote()
    os.kill(first, signal.SIGKILL)
    with pytest.raises(RayActorError):
        raygo.get(ref, timeout=20)
    second = raygo.get(a.pid.remote(), timeout=20)
    assert second != first
    os.kill(second, signal.SIGKILL)
    assert until(lambda: not alive(second))
    with pytest.raises(ActorDiedError):
        raygo.get(a.pid.remote(), timeout=20)


def test_worker_that_closes_its_output(runtime):
    @raygo.remote
    def quiet():
        os.close(1)
        os.close(2)
        return os.getpid()

    first = raygo.get(quiet.remote(), timeout=20)
    assert alive(first)
    assert len(raygo.get([pid.remote() for _ in range(50)], timeout=20)) == 50


DRIVER = """
    import os, sys, time, raygo
    raygo.init(num_cpus=2, include_dashboard=False)

    @raygo.remote
    def pid():
        time.sleep(0.3)
        return os.getpid()

    @raygo.remote
    class Actor:
        def pid(self): return os.getpid()
        def spin(self):
            while True: pass

    actor = Actor.remote()
    big = raygo.put(b"x" * 10_000_000)
    pids = set(raygo.get([pid.remote() for _ in range(4)])) | {raygo.get(actor.pid.remote())}
    busy = actor.spin.remote()
    print(*pids, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_driver_killed_leaves_nothing(driver, sig):
    process = driver(DRIVER)
    pids = [int(p) for p in process.stdout.readline().split()]
    assert len(pids) >= 2 and all(map(alive, pids)), process.stderr.read()
    children = []
    for thread in os.listdir(f"/proc/{process.pid}/task"):   # the engine's own threads fork
        with open(f"/proc/{process.pid}/task/{thread}/children") as f:
            children += map(int, f.read().split())
    assert children, "the template is a child of the driver"
    process.send_signal(sig)
    process.wait(10)
    assert until(lambda: not any(map(alive, pids + children))), [p for p in pids + children if alive(p)]


def test_worker_that_closes_all_its_descriptors(runtime):
    @raygo.remote(max_retries=0)
    def close():
        os.closerange(0, 1000)
        return 1

    with pytest.raises(WorkerCrashedError, match="task close .*closed its connection"):
        raygo.get(close.remote(), timeout=20)
    assert raygo.get(pid.remote(), timeout=20)


@pytest.mark.parametrize("end", ["shutdown", "kill", "stopped", "after its template"])
def test_what_a_task_left_running_ends_with_its_worker(runtime, end):
    @raygo.remote
    def leave():
        import subprocess

        return subprocess.Popen(["sleep", "300"]).pid, os.getpid(), os.getppid()

    child, worker, template = raygo.get(leave.remote(), timeout=20)
    assert alive(child)
    if end == "after its template":
        os.kill(template, signal.SIGKILL)
        assert until(lambda: not alive(template))
    if end == "stopped":
        os.kill(worker, signal.SIGSTOP)
    if end in ("shutdown", "stopped"):
        raygo.shutdown()
    else:
        os.kill(worker, signal.SIGKILL)
    assert until(lambda: not alive(worker) and not alive(child))


def test_what_a_task_left_running_ends_with_the_driver(driver):
    process = driver("""
        import os, signal, subprocess, raygo
        raygo.init(num_cpus=1, include_dashboard=False)

        @raygo.remote
        def leave():
            return subprocess.Popen(["sleep", "300"]).pid, os.getpid()

        print(*raygo.get(leave.remote(), timeout=20), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    out, _ = process.communicate(timeout=30)
    child, worker = map(int, out.split())
    assert until(lambda: not alive(worker) and not alive(child))


def test_random_kills_lose_nothing(runtime):
    """Trees of tasks, objects, generators and an actor's calls come out right, whichever of their workers die, and leave nothing behind."""
    import random
    import threading

    @raygo.remote(max_retries=-1)
    def tree(depth):
        return sum(raygo.get([tree.remote(depth - 1) for _ in range(3)])) if depth else 1

    @raygo.remote(max_retries=-1)
    def puts(n):
        return [raygo.put(np.full(100_000, i)) for i in range(n)]

    @raygo.remote(max_retries=-1, num_returns="streaming")
    def stream(n):
        for i in range(n):
            yield np.full(20_000, i)

    @raygo.remote(max_restarts=-1, max_task_retries=-1)
    class Actor:
        async def echo(self, i):
            return i

    rng, stop = random.Random(2026), threading.Event()
    done, killed = [], {}

    def kill_some():
        while not stop.wait(rng.random() * 0.2):
            if killed.get(len(done), 0) >= 10:   # else nothing would ever end on a slow machine
                continue
            workers = sorted(w.pid for w in list_workers(limit=100) if w.worker_type == "WORKER" and w.pid)
            try:
                if workers:
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    killed[len(done)] = killed.get(len(done), 0) + 1
            except ProcessLookupError:
                pass  # it has ended by itself

    killer = threading.Thread(target=kill_some)
    actor = Actor.remote()
    killer.start()
    try:
        for _ in range(12):
            assert raygo.get(tree.remote(2), timeout=60) == 9
            done.append("tree")
            assert [int(a[0]) for a in raygo.get(raygo.get(puts.remote(4), timeout=60), timeout=60)] == [0, 1, 2, 3]
            done.append("puts")
            assert [int(raygo.get(item, timeout=60)[0]) for item in stream.remote(10)] == list(range(10))
            done.append("stream")
            assert raygo.get([actor.echo.remote(i) for i in range(100)], timeout=60) == list(range(100))
            done.append("calls")
    finally:
        stop.set()
        killer.join()
    del actor
    assert until(lambda: not left_in_store()), left_in_store()
