"""Tasks that take too much memory.

The threshold is set a little above what is in use now, so the machine itself is never short. Whoever else works on it meanwhile may use memory too: the room
is wide, and nothing here depends on how long anything takes.
"""
import os
import re
import subprocess
import sys
import textwrap
import time

import pytest

import raygo
from raygo._calls import call
from raygo.exceptions import ActorDiedError, ActorUnavailableError, OutOfMemoryError, RayTaskError, TaskUnschedulableError

MB = 2**20
ROOM, MACHINE_ROOM = 480 * MB, 1200 * MB


def meminfo():
    with open("/proc/meminfo") as f:
        said = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in f}
    return said["MemTotal"], said["MemAvailable"]


def control_group():
    """Make a control group that can limit memory, of version 1 or 2: its folder and the names of two of its files. None: not here."""
    for folder, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        name = f"{folder}/raygo-test-{os.getpid()}"
        try:
            os.mkdir(name)
        except OSError:
            continue
        if os.path.exists(f"{name}/{limit}"):
            return name, limit, f"{folder}/{own_group(limit)}/cgroup.procs"
        os.rmdir(name)
    return None


def own_group(limit):
    with open("/proc/self/cgroup") as f:
        for line in f.read().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(",") if limit != "memory.max" else not controllers:
                return path
    return "/"


def write(path, text):
    with open(path, "w") as f:
        f.write(str(text))


def remove_group(folder):
    for _ in range(500):
        try:
            return os.rmdir(folder)
        except OSError:  # its last processes are just ending
            time.sleep(0.02)


@pytest.fixture
def tight():
    """Starts a runtime in which tasks may take ROOM together, or so.

    In a control group of its own where one can be made: there nobody else's memory counts. Otherwise the threshold is MACHINE_ROOM above what is in use.
    """
    raygo.shutdown()
    made = control_group()

    def start(num_cpus=3, room=ROOM, group=True, **settings):
        if made and group:
            folder, limit, _ = made
            write(f"{folder}/{limit}", 4 * ROOM)
            write(f"{folder}/cgroup.procs", os.getpid())
            threshold = room / (4 * ROOM)
        else:
            total, available = meminfo()
            threshold = (total - available + room - ROOM + MACHINE_ROOM) / total
        config = {"memory_usage_threshold": threshold, "memory_monitor_refresh_ms": 50, "task_oom_retry_delay_base_ms": 50, **settings}
        raygo.init(num_cpus=num_cpus, include_dashboard=False, object_store_memory=64 * MB, log_to_driver=False, _system_config=config)

    if meminfo()[1] < 2 * MACHINE_ROOM:
        pytest.skip("too little memory is free on this machine")
    yield start
    raygo.shutdown()
    if made:
        write(made[2], os.getpid())
        remove_group(made[0])


def fill(limit=None):
    """Take memory bit by bit; without a limit until the process is ended."""
    blocks = []
    while limit is None or len(blocks) * 16 * MB < limit:
        blocks.append(b"x" * (16 * MB))
        time.sleep(0.01)
    return blocks


@raygo.remote(max_retries=0)
def greedy():
    return len(fill())


def kills():
    return call("node.memory", {})["kills"]


@pytest.mark.parametrize("group", [True, False], ids=["group", "machine"])
def test_the_greedy_tasks_are_ended_and_the_modest_one_lives(tight, tmp_path, group):
    tight(group=group)

    @raygo.remote(max_retries=0)
    def modest(path):
        while not (path / "go").exists():
            time.sleep(0.02)
        return "alive"

    ref = modest.remote(tmp_path)
    for one in [greedy.remote(), greedy.remote()]:
        with pytest.raises(OutOfMemoryError) as info:
            raygo.get(one, timeout=120)
        text = str(info.value)
        held = re.search(r"It held ([\d.]+) GiB", text)
        assert held and 0.05 < float(held[1]) < 2, text
        row = re.search(r"^ +(\d+) +([\d.]+) GiB +([\d.]+) GiB  task greedy$", text, re.M)
        assert row and float(row[2]) >= float(row[3]) > 0.05, text
        where = "control group /raygo-test" if group and limited_by_group() else "the machine"
        for part in ("task greedy", f"GiB of {where}", "memory_usage_threshold", "memory=<bytes>"):
            assert part in text, text
    (tmp_path / "go").touch()
    assert raygo.get(ref, timeout=60) == "alive"
    assert kills() == 2


def limited_by_group():
    return call("node.memory", {})["where"] != "the machine"


def test_a_retriable_task_succeeds_when_memory_is_back(tight, tmp_path):
    tight()

    @raygo.remote(max_retries=0)
    def holds(path):
        blocks = fill(240 * MB)
        (path / "full").touch()
        while not (path / "go").exists():
            time.sleep(0.02)
        return len(blocks)

    @raygo.remote(max_retries=1)
    def grows(path):
        with open(path / "tries", "a") as f:
            f.write("x")
        if (path / "tries").stat().st_size > 2:  # tried more often than max_retries has it: it was not to blame
            (path / "go").touch()
            return "done"
        fill()

    first = holds.remote(tmp_path)
    while not (tmp_path / "full").exists():
        assert not raygo.wait([first], timeout=0.05)[0]
    assert raygo.get(grows.remote(tmp_path), timeout=120) == "done"
    assert raygo.get(first, timeout=60) == 15
    assert (tmp_path / "tries").read_text() == "xxx"


@pytest.mark.parametrize(("settings", "max_retries", "tries"), [({}, 2, "xxx"), ({"task_oom_retries": 1}, 5, "xx")], ids=["max_retries", "task_oom_retries"])
def test_a_task_that_needs_more_than_there_is_ends_within_its_retries(tight, tmp_path, settings, max_retries, tries):
    tight(**settings)

    @raygo.remote(max_retries=max_retries)
    def hopeless(path):
        with open(path / "tries", "a") as f:
            f.write("x")
        fill()

    with pytest.raises(OutOfMemoryError):
        raygo.get(hopeless.remote(tmp_path), timeout=200)
    assert (tmp_path / "tries").read_text() == tries


def test_a_greedy_actor(tight):
    tight()

    @raygo.remote
    class Hoarder:
        def fill(self):
            self.blocks = fill()

        def ping(self):
            return "pong"

    once, twice = Hoarder.remote(), Hoarder.options(max_restarts=1).remote()
    assert raygo.get([once.ping.remote(), twice.ping.remote()], timeout=60) == ["pong", "pong"]
    with pytest.raises(OutOfMemoryError, match=r"actor Hoarder in Hoarder\.fill"):
        raygo.get(once.fill.remote(), timeout=120)
    with pytest.raises((OutOfMemoryError, ActorDiedError)):
        raygo.get(once.ping.remote(), timeout=60)
    with pytest.raises(ActorUnavailableError, match="to save memory"):
        raygo.get(twice.fill.remote(), timeout=120)
    assert raygo.get(twice.ping.remote(), timeout=60) == "pong"


def test_a_greedy_nested_task(tight):
    tight()

    @raygo.remote(max_retries=0)
    def parent():
        try:
            raygo.get(greedy.remote())
        except OutOfMemoryError as error:
            return str(error)

    @raygo.remote(max_retries=0)
    def careless():
        return raygo.get(greedy.remote())

    assert "task greedy" in raygo.get(parent.remote(), timeout=120)
    with pytest.raises(RayTaskError) as info:
        raygo.get(careless.remote(), timeout=120)
    assert isinstance(info.value, OutOfMemoryError) and "careless" in str(info.value)


@pytest.mark.parametrize("session", [False, True])
def test_a_child_process_holds_the_memory(tight, session):
    tight()

    @raygo.remote(max_retries=0)
    def parent():
        code = "import time\nblocks = []\nwhile True:\n    blocks.append(b'x' * (16 << 20)); time.sleep(0.01)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=session)
        print(child.pid)
        child.wait()

    with pytest.raises(OutOfMemoryError) as info:
        raygo.get(parent.remote(), timeout=120)
    text = str(info.value)
    assert "with 1 processes that it had started" in text, text
    row = re.search(r"^ +(\d+) +[\d.]+ GiB +[\d.]+ GiB  python\S*" + ("" if session else ", started by task parent") + "$", text, re.M)
    assert row, text
    with pytest.raises(OSError):
        for _ in range(1000):  # it has been killed; the kernel may still be at it
            os.kill(int(row[1]), 0)
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            time.sleep(0.01)


def test_what_is_cached_in_the_object_store_counts_once(tight):
    import numpy as np

    tight(num_cpus=4)

    @raygo.remote(max_retries=0)
    def reads(array):
        return int(array[::4096].sum())

    ref = raygo.put(np.ones(48 * MB, np.uint8))
    assert raygo.get([reads.remote(ref) for _ in range(60)], timeout=120) == [48 * 256] * 60  # 2.8 GB, if each had its own
    assert kills() == 0


def test_the_monitor_can_be_turned_off(tight):
    tight(memory_monitor_refresh_ms=0, room=0)

    @raygo.remote(max_retries=0)
    def takes():
        return len(fill(400 * MB))

    assert raygo.get(takes.remote(), timeout=60) == 25
    assert kills() == 0 and call("node.memory", {})["monitor_ms"] == 0


def test_min_memory_free_moves_the_threshold(tight):
    tight(room=0, min_memory_free_bytes=256 * MB)
    said = call("node.memory", {})
    if said["where"] == "the machine":
        assert said["threshold"] == said["limit"] - 256 * MB

    @raygo.remote(max_retries=0)
    def takes():
        return len(fill(400 * MB))

    assert raygo.get(takes.remote(), timeout=60) == 25


@pytest.mark.parametrize("value", ["lots", "1.5"])
def test_a_threshold_that_is_none_is_refused(driver, value):
    process = driver("import raygo; raygo.init()", RAY_memory_usage_threshold=value)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "memory_usage_threshold" in err and "ValueError" in err, err


def test_memory_is_reserved_for_those_who_ask(tight, tmp_path):
    tight(num_cpus=8)
    total = raygo.cluster_resources()["memory"]
    assert raygo.available_resources()["memory"] == total

    @raygo.remote(memory=int(total * 0.4))
    def asks(i):
        (tmp_path / f"now{i}").touch()
        together = len(list(tmp_path.glob("now*")))
        time.sleep(0.2)
        (tmp_path / f"now{i}").unlink()
        return together, raygo.get_runtime_context().get_assigned_resources()["memory"]

    results = raygo.get([asks.remote(i) for i in range(6)], timeout=60)
    assert max(together for together, _ in results) <= 2
    assert {amount for _, amount in results} == {float(int(total * 0.4))}

    @raygo.remote(memory=total // 2)
    class Asks:
        def free(self):
            return raygo.available_resources()["memory"]

    actor = Asks.remote()
    assert raygo.get(actor.free.remote(), timeout=60) <= total / 2 + 1


def test_more_memory_than_there_is_is_refused(driver):
    process = driver("""
        import raygo
        raygo.init(num_cpus=1, _memory=10**9)
        assert raygo.cluster_resources()["memory"] == 1e9

        @raygo.remote(memory=2 * 10**9)
        def asks():
            pass

        raygo.get(asks.remote(), timeout=60)
    """, RAYGO_INFEASIBLE_TIMEOUT_S="0.5")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert TaskUnschedulableError.__name__ in err and "memory" in err and "2000000000" in err and "1000000000" in err, err


def test_workers_say_what_they_hold(tight):
    from raygo.util.state import list_workers

    tight()

    @raygo.remote
    class Holds:
        def __init__(self):
            self.blocks = fill(100 * MB)

        def pid(self):
            return os.getpid()

    actor = Holds.remote()
    pid = raygo.get(actor.pid.remote(), timeout=60)
    rows = {row["pid"]: row for row in call("node.memory", {})["processes"]}
    assert rows[pid]["what"] == "actor Holds" and rows[pid]["rss"] >= rows[pid]["uss"] >= 100 * MB
    assert rows[os.getpid()]["what"] == "driver and engine"
    assert pid in {worker.pid for worker in list_workers(detail=True)}
    text = call("metrics.text", None)
    total = meminfo()[0]
    figures = dict(line.split(" ") for line in text.splitlines() if line.startswith("ray_node_mem"))
    assert 0 < float(figures["ray_node_mem_used"]) < float(figures["ray_node_mem_total"]) <= total


@pytest.fixture
def confined(tmp_path):
    """Runs a driver in a control group of its own with a limit; returns its output."""
    made = control_group()
    if made is None:
        pytest.skip("no permission to make control groups here")
    folder, limit_file, _ = made

    def run(source, limit, **env):
        write(f"{folder}/{limit_file}", limit)
        (tmp_path / "driver.py").write_text(textwrap.dedent(source))
        join = f"echo $$ > {folder}/cgroup.procs && exec {sys.executable} {tmp_path}/driver.py"
        done = subprocess.run(["sh", "-c", join], capture_output=True, text=True, timeout=180, env={**os.environ, **env})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    remove_group(folder)


CONFINED = """
    import time, raygo
    raygo.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=32 << 20)
    print("TOTAL", raygo.cluster_resources()["memory"])

    @raygo.remote(max_retries=0)
    def greedy():
        blocks = []
        while True:
            blocks.append(b"x" * (8 << 20)); time.sleep(PAUSE)

    try:
        raygo.get(greedy.remote(), timeout=120)
    except raygo.exceptions.OutOfMemoryError as error:
        print("OOM", error)
"""


def test_the_limit_of_a_control_group(confined):
    out = confined(CONFINED.replace("PAUSE", "0.02"), 700 * MB, RAY_memory_monitor_refresh_ms="30", RAY_memory_usage_threshold="0.5")
    assert "control group /raygo-test-" in out and "to save memory" in out and "0.68 GiB" in out, out
    assert float(re.search(r"TOTAL ([\d.]+)", out)[1]) < 700 * MB


def test_ended_by_the_kernel(confined):
    out = confined(CONFINED.replace("PAUSE", "0"), 300 * MB, RAY_memory_monitor_refresh_ms="0")
    assert "OOM" in out and "SIGKILL" in out and "the kernel has ended a process for want of memory" in out, out
