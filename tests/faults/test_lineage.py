"""Values whose copy on disk is gone, cut short or altered: they are made again by running their tasks, or say why they cannot."""
import os
import time

import numpy as np
import pytest

import raygo
from raygo._calls import call
from raygo.exceptions import ObjectFreedError, ObjectLostError, ObjectReconstructionFailedError, StreamingGeneratorReplayInconsistentError

MB = 2**20
FLOATS = 2 * MB // 8


@pytest.fixture
def small():
    """A store of 16 MB: seven values of 2 MB fit, older ones are on disk."""
    yield from _session()


def _session(**system_config):
    raygo.shutdown()
    raygo.init(num_cpus=2, include_dashboard=False, object_store_memory=16 * MB, log_to_driver=False, _system_config=system_config)
    yield raygo
    raygo.shutdown()


def truncate(fd):
    os.ftruncate(fd, 0)


def flip(fd):
    """Alter a byte in the middle of every block, beyond the records' headers."""
    for at in range(2048, os.fstat(fd).st_size, 4096):
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 0xFF]), at)


@raygo.remote(max_retries=0)
def filler():
    return np.zeros(FLOATS)


def lose(refs, damage=truncate):
    """Have these objects spilled, and the spill files damaged. They have no name, but descriptors in the process of the engine, which is this one."""
    refs = refs if isinstance(refs, list) else [refs]
    wanted, fillers, deadline = {ref.hex() for ref in refs}, [], time.monotonic() + 60
    while wanted - {row["object_id"] for row in call("state.objects", {"limit": 10_000}) if row["where"] == "spilled"}:
        assert time.monotonic() < deadline, "it is not spilled"
        fillers.append(filler.remote())
        raygo.wait(fillers, num_returns=len(fillers), timeout=60)
    damaged = set()  # by inode: a file may be open more than once
    for link in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{link}"
        try:
            spill = "/spill/" in os.readlink(path)
        except OSError:  # the listing's own
            continue
        if spill:
            fd = os.open(path, os.O_RDWR)
            if os.fstat(fd).st_ino not in damaged:
                damage(fd)
                damaged.add(os.fstat(fd).st_ino)
            os.close(fd)
    assert damaged


class Runs:
    """Counts what tasks did, in a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def note(self, what):
        with open(os.path.join(self.folder, str(what)), "ab", buffering=0) as file:
            file.write(b"x")

    def of(self, what):
        try:
            return os.path.getsize(os.path.join(self.folder, str(what)))
        except FileNotFoundError:
            return 0


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    return Runs(folder)


@raygo.remote
def make(runs, name, value):
    runs.note(name)
    return np.full(FLOATS, float(value))


@raygo.remote
def add(runs, name, *arrays):
    runs.note(name)
    return sum(arrays) + 1.0


def stats(key):
    return call("node.stats", None)[key]


@pytest.mark.parametrize("damage", [truncate, flip])
def test_lost_values_are_made_again(small, runs, damage):
    refs = [make.remote(runs, i, i) for i in range(5)]
    assert [raygo.get(r, timeout=60)[0] for r in refs] == [0, 1, 2, 3, 4]
    lose(refs, damage)
    for i, r in enumerate(refs):
        value = raygo.get(r, timeout=60)
        assert value.shape == (FLOATS,)
        assert (value == i).all()
        del value
    assert [runs.of(i) for i in range(5)] == [2] * 5
    assert stats("tasks_rerun") == 5


def test_a_value_that_is_held_in_memory_stays(small, runs):
    """A view pins its object: that one is neither spilled nor lost, and its task is not run again."""
    ref = make.remote(runs, "held", 7)
    view = raygo.get(ref, timeout=60)
    other = make.remote(runs, "other", 8)
    raygo.wait([other], timeout=60)
    lose(other)
    assert (view == 7).all()
    assert (raygo.get(ref, timeout=60) == 7).all()
    assert runs.of("held") == 1


def test_a_chain_whose_links_are_gone(small, runs):
    at = make.remote(runs, 0, 0)
    for i in range(1, 5):
        at = add.remote(runs, i, at)
    assert raygo.get(at, timeout=60)[0] == 4
    lose(at)
    assert (raygo.get(at, timeout=60) == 4).all()
    assert [runs.of(i) for i in range(5)] == [2] * 5


def test_a_diamond_runs_each_task_once_more(small, runs):
    top = make.remote(runs, "top", 1)
    left, right = add.remote(runs, "left", top), add.remote(runs, "right", top)
    end = add.remote(runs, "end", left, right)
    assert raygo.get(end, timeout=60)[0] == 5
    del top, left, right
    lose(end)
    assert (raygo.get(end, timeout=60) == 5).all()
    assert [runs.of(k) for k in ("top", "left", "right", "end")] == [2] * 4


def test_what_is_still_there_is_used(small, runs):
    top = make.remote(runs, "top", 1)
    end = add.remote(runs, "end", top)
    view = raygo.get(top, timeout=60)
    assert raygo.get(end, timeout=60)[0] == 2
    lose(end)
    assert raygo.get(end, timeout=60)[0] == 2
    assert (runs.of("top"), runs.of("end"), view[0]) == (1, 2, 1.0)


def test_large_and_nested_arguments(small, runs):
    @raygo.remote
    def nested(runs, refs):
        runs.note("outer")
        return raygo.get(refs[0]) * 2

    inner = make.remote(runs, "inner", 3)
    outer = nested.remote(runs, [inner])
    assert raygo.get(outer, timeout=60)[0] == 6
    del inner
    lose(outer)
    assert (raygo.get(outer, timeout=60) == 6).all()
    assert (runs.of("inner"), runs.of("outer")) == (2, 2)


def test_several_values_of_one_task(small, runs):
    @raygo.remote(num_returns=3)
    def three(runs):
        runs.note("three")
        return np.full(FLOATS, 1.0), "small", np.full(FLOATS, float(runs.of("three")))

    one, two, last = three.remote(runs)
    assert raygo.get(last, timeout=60)[0] == 1
    view = raygo.get(one, timeout=60)
    lose(last)
    assert raygo.get(last, timeout=60)[0] == 2
    assert raygo.get(two, timeout=60) == "small"
    assert raygo.get(one, timeout=60) is not None
    assert (runs.of("three"), view[0]) == (2, 1.0)


def test_retries_are_used_up(small, runs):
    ref = make.options(max_retries=1).remote(runs, "f", 4)
    raygo.wait([ref], timeout=60)
    lose(ref)
    assert (raygo.get(ref, timeout=60) == 4).all()
    lose(ref)
    for _ in range(2):
        with pytest.raises(ObjectReconstructionFailedError, match=r"value 1 of task .*make.* is lost: .*cannot read .*used up its retries") as caught:
            raygo.get(ref, timeout=60)
        assert caught.value.reason == 12
        assert caught.value.object_ref_hex == ref.hex()
    assert runs.of("f") == 2


def test_a_task_that_may_not_be_retried(small, runs):
    ref = make.options(max_retries=0).remote(runs, "f", 4)
    raygo.wait([ref], timeout=60)
    lose(ref, flip)
    with pytest.raises(ObjectReconstructionFailedError, match=r"checksum differs.*max_retries.*is 0") as caught:
        raygo.get(ref, timeout=60)
    assert caught.value.reason == 28
    assert runs.of("f") == 1


def test_a_lost_put(small):
    ref = raygo.put(np.ones(FLOATS))
    lose(ref)
    with pytest.raises(ObjectLostError, match=rf"{FLOATS * 8}\d* bytes|put by the driver with pid {os.getpid()}.*no task that could make them again") as caught:
        raygo.get(ref, timeout=60)
    assert isinstance(caught.value, ObjectReconstructionFailedError)
    assert caught.value.reason == 27


def test_the_first_cause_of_a_chain_is_named(small, runs):
    put = raygo.put(np.ones(FLOATS))
    first = add.remote(runs, "first", put)
    second = add.remote(runs, "second", first)
    raygo.wait([second], timeout=60)
    gone = put.hex()
    del put, first
    lose(second)
    with pytest.raises(ObjectReconstructionFailedError, match=rf"an argument of its task is lost as well: object {gone}.*put by the driver") as caught:
        raygo.get(second, timeout=60)
    assert caught.value.object_ref_hex == second.hex()
    assert caught.value.reason == 27


def test_tiny_lineage_memory(runs, monkeypatch):
    monkeypatch.setenv("RAY_max_lineage_bytes", "1500")
    session = _session()
    next(session)
    try:
        refs = []
        for i in range(4):
            refs.append(make.remote(runs, i, i))
            raygo.wait(refs, num_returns=len(refs), timeout=60)
        assert 0 < stats("lineage_bytes") <= 1500
        lose(refs)
        with pytest.raises(ObjectReconstructionFailedError, match="within 1500 bytes: raise RAY_max_lineage_bytes") as caught:
            raygo.get(refs[0], timeout=60)
        assert caught.value.reason == 13
    finally:
        next(session, None)


def test_lineage_turned_off(runs):
    session = _session(max_lineage_bytes=0)
    next(session)
    try:
        ref = make.remote(runs, 0, 0)
        raygo.wait([ref], timeout=60)
        lose(ref)
        with pytest.raises(ObjectReconstructionFailedError, match="RAY_max_lineage_bytes is 0") as caught:
            raygo.get(ref, timeout=60)
        assert caught.value.reason == 32
    finally:
        next(session, None)


def test_items_of_a_generator(small, runs):
    @raygo.remote(max_retries=-1)
    def items(runs):
        runs.note("run")
        for i in range(4):
            yield np.full(FLOATS, float(i))

    refs = list(items.remote(runs))
    assert [raygo.get(r, timeout=60)[0] for r in refs] == [0, 1, 2, 3]
    lose(refs)
    for i, r in enumerate(refs):
        assert (raygo.get(r, timeout=60) == i).all()
    assert 2 <= runs.of("run") <= 5


def test_a_generator_that_yields_less_the_second_time(small, runs):
    @raygo.remote
    def items(runs):
        runs.note("run")
        for i in range(4 - 2 * (runs.of("run") - 1)):
            yield np.full(FLOATS, float(i))

    refs = list(items.remote(runs))
    raygo.wait(refs, num_returns=4, timeout=60)
    lose(refs)
    with pytest.raises(StreamingGeneratorReplayInconsistentError, match="item 3 of task .*items.*yielded no item 3"):
        raygo.get(refs[3], timeout=60)


def test_queued_tasks_and_actors_wait(small, runs):
    """Their argument is lost while they wait for their turn."""

    @raygo.remote(num_cpus=2)
    def block(path):
        while not os.path.exists(path):
            os.sched_yield()

    @raygo.remote
    class Adder:
        def __init__(self, array):
            self.start = array[0]

        def add(self, array):
            return self.start + array[0]

    a = make.remote(runs, "a", 5)
    adder = Adder.options(num_cpus=0).remote(a)
    assert raygo.get(adder.add.remote(a), timeout=60) == 10
    busy = block.remote(os.path.join(runs.folder, "go"))
    queued = [add.remote(runs, "queued", a) for _ in range(3)]
    late = Adder.remote(a)
    go = os.path.join(runs.folder, "go")
    open(go, "w").close()
    raygo.get(busy, timeout=60)
    raygo.get(queued, timeout=60)
    del queued
    lose(a)
    os.unlink(go)
    busy = block.remote(go)
    queued = [add.remote(runs, "queued", a) for _ in range(3)]
    called = [adder.add.remote(a), adder.add.remote(a)]
    later = Adder.remote(a)
    open(go, "w").close()
    assert [x[0] for x in raygo.get(queued, timeout=60)] == [6, 6, 6]
    assert raygo.get([*called, late.add.remote(a), later.add.remote(a)], timeout=60) == [10, 10, 10, 10]
    assert runs.of("a") == 2


def test_a_task_waits_inside_for_a_lost_value(small, runs):
    """Both CPUs belong to tasks that wait for it: they give them back."""

    @raygo.remote
    def reader(refs):
        return raygo.get(refs[0])[0]

    ref = make.remote(runs, "a", 9)
    raygo.wait([ref], timeout=60)
    lose(ref)
    assert raygo.get([reader.remote([ref]) for _ in range(6)], timeout=60) == [9] * 6
    assert runs.of("a") == 2


def test_results_of_actors(small):
    @raygo.remote
    class Counter:
        def __init__(self):
            self.n = 0

        def count(self):
            self.n += 1
            return np.full(FLOATS, float(self.n))

    once = Counter.remote()
    again = Counter.options(max_task_retries=2).remote()
    lost, made = once.count.remote(), again.count.remote()
    raygo.wait([lost, made], num_returns=2, timeout=60)
    lose([lost, made])
    assert raygo.get(made, timeout=60)[0] == 2
    with pytest.raises(ObjectReconstructionFailedError, match=r"call Counter\.count.*max_task_retries"):
        raygo.get(lost, timeout=60)


def test_a_run_that_fails_the_second_time(small, runs):
    @raygo.remote
    def once(runs):
        runs.note("once")
        if runs.of("once") > 1:
            raise ValueError("not twice")
        return np.ones(FLOATS)

    ref = once.remote(runs)
    raygo.wait([ref], timeout=60)
    lose(ref)
    with pytest.raises(ValueError, match="not twice"):
        raygo.get(ref, timeout=60)


def test_nothing_is_kept_in_the_end(small, runs):
    top = make.remote(runs, 0, 0)
    end = add.remote(runs, 1, top)
    raygo.wait([end], timeout=60)
    del top
    assert stats("lineage_tasks") == 2
    assert stats("lineage_bytes") > 0
    del end
    deadline = time.monotonic() + 60
    while stats("lineage_tasks"):  # the reference is let go in the background
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert stats("lineage_bytes") == 0


def test_small_results_keep_no_lineage(small):
    @raygo.remote
    def tiny(i):
        return i

    refs = [tiny.remote(i) for i in range(100)]
    assert raygo.get(refs, timeout=60) == list(range(100))
    assert stats("lineage_tasks") == 0


def test_what_was_freed_by_hand(small, runs):
    put, made = raygo.put(np.ones(FLOATS)), make.remote(runs, 0, 3)
    user = add.remote(runs, 1, made)
    assert raygo.get(user, timeout=60)[0] == 4
    view = raygo.get(put, timeout=60)
    raygo.internal.free([put, made])
    for ref, what in ((put, "put by the driver"), (made, "value 1 of task .*make")):
        with pytest.raises(ObjectFreedError, match=rf"{what}.*was freed by hand") as caught:
            raygo.get(ref, timeout=60)
        assert caught.value.object_ref_hex == ref.hex()
    assert (view == 1).all()
    assert raygo.get(user, timeout=60)[0] == 4
    with pytest.raises(TypeError, match="takes ObjectRefs"):
        raygo.internal.free([1])


def test_large_arguments_by_value(small, runs):
    """They are put, and nobody else holds them: the task keeps them for a second run."""
    ref = add.remote(runs, "by value", np.ones(FLOATS))
    view = raygo.get(ref, timeout=60)
    assert view[0] == 2
    del view
    lose(ref, lambda fd: _flip_record_of(fd, 2.0))
    assert (raygo.get(ref, timeout=60) == 2).all()
    assert runs.of("by value") == 2


def _flip_record_of(fd, value):
    """Damage only the records of arrays that are full of the value."""
    pattern = np.full(8, value).tobytes()
    for at in range(2048, os.fstat(fd).st_size, 4096):
        if os.pread(fd, 64, at) == pattern:
            os.pwrite(fd, b"\xff", at)
