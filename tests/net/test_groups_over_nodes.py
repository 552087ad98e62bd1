"""Collectives and messages of groups whose ranks are on several nodes: results, and what happens when something fails."""

from __future__ import annotations

import re
import signal
import time

import pytest

LAYOUTS = {"2x2": ["a", "a", "b", "b"], "3x1": ["a", "b", "c"], "mixed": ["a", "b", "a", "c", "b"]}

EVERYTHING = """
group = open_group()
rng = np.random.default_rng(RANK)
for count in (1, 37, 4096, 100_003):
    for name in ("float32", "float64", "int32", "int64", "uint8", "float16"):
        for op, fold in (("sum", np.add), ("max", np.maximum), ("min", np.minimum)):
            all_of = [np.random.default_rng(r).integers(0, 5, count).astype(name) for r in range(SIZE)]
            mine = all_of[RANK].copy()
            group.allreduce(address(mine), address(mine), count, DTYPES[name], OPS[op])
            want = all_of[0]
            for other in all_of[1:]:
                want = fold(want, other)
            assert np.array_equal(mine, want), ("allreduce", count, name, op)
    f32 = DTYPES["float32"]
    all_of = [np.arange(count, dtype="float32") + 10 * r for r in range(SIZE)]
    mine = all_of[RANK].copy()
    group.allreduce(address(mine), address(mine), count, f32, OPS["avg"])
    assert np.allclose(mine, sum(all_of) / SIZE), "avg"
    for root in range(SIZE):
        mine = all_of[RANK].copy()
        group.broadcast(address(mine), count, f32, root)
        assert np.array_equal(mine, all_of[root]), ("broadcast", root)
        out = np.zeros(count, "float32")
        group.reduce(address(all_of[RANK]), address(out), count, f32, OPS["sum"], root)
        assert RANK != root or np.array_equal(out, sum(all_of)), ("reduce", root)
        out = np.zeros(SIZE * count, "float32")
        group.gather(address(all_of[RANK]), address(out), count, f32, root)
        assert RANK != root or np.array_equal(out, np.concatenate(all_of)), ("gather", root)
        out = np.zeros(count, "float32")
        parts = np.concatenate(all_of)
        group.scatter(address(parts), address(out), count, f32, root)
        assert np.array_equal(out, all_of[RANK]), ("scatter", root)
    out = np.zeros(SIZE * count, "float32")
    group.allgather(address(all_of[RANK]), address(out), count, f32)
    assert np.array_equal(out, np.concatenate(all_of)), "allgather"
    source = np.concatenate([all_of[RANK] + 1000 * r for r in range(SIZE)])
    out = np.zeros(count, "float32")
    group.reducescatter(address(source), address(out), count, f32, OPS["sum"])
    assert np.array_equal(out, sum(a + 1000 * RANK for a in all_of)), "reducescatter"
    out = np.zeros(SIZE * count, "float32")
    group.alltoall(address(source), address(out), count, f32)
    assert np.array_equal(out, np.concatenate([a + 1000 * RANK for a in all_of])), "alltoall"
    group.barrier()
    out = np.zeros(count, "float32")
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sent = group.isend(address(all_of[RANK]), count, f32, after, 3)
    group.recv(address(out), count, f32, before, 3)
    sent.wait()
    assert np.array_equal(out, all_of[before]), "send and recv"
works = []
arrays = [np.full(1000, RANK + i, "int64") for i in range(20)]
for a in arrays:
    works.append(group.iallreduce(address(a), address(a), 1000, DTYPES["int64"], OPS["sum"]))
for i, (work, a) in enumerate(zip(works, arrays)):
    work.wait()
    assert np.array_equal(a, np.full(1000, sum(range(SIZE)) + SIZE * i)), "started ones"
assert group.nodes == len(set(LAYOUT)) and group.local_size == LAYOUT.count(NODE)
group.close()
print("done")
"""


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_everything_on_one_machine(ranks, layout):
    ranks.start(layout, f"LAYOUT = {layout}\n" + EVERYTHING)
    assert all("done" in out for out in ranks.check())


@pytest.mark.parametrize("layout", [LAYOUTS["2x2"], LAYOUTS["3x1"]], ids=["2x2", "3x1"])
def test_everything_between_namespaces(ranks, spaces, layout):
    ranks.start(layout, f"LAYOUT = {layout}\n" + EVERYTHING, spaces(sorted(set(layout))))
    assert all("done" in out for out in ranks.check())


def test_a_slow_link_is_only_slow(ranks, spaces):
    made = spaces(["a", "b"])
    try:
        made.slow("a", "40mbit", "20ms")
    except PermissionError as refusal:
        pytest.skip(f"the link cannot be made slow here: {refusal}")
    ranks.start(
        ["a", "b"],
        """
        group = open_group()
        a = np.full(2_000_000, RANK + 1, "float32")
        group.allreduce(address(a), address(a), a.size, DTYPES["float32"], OPS["sum"])
        assert (a == 3).all()
        print("done")
        """,
        made,
    )
    assert all("done" in out for out in ranks.check())


WAITING = """
group = open_group()
a = np.ones(10, "float32")
group.allreduce(address(a), address(a), 10, DTYPES["float32"], OPS["sum"])
mark(f"ready{RANK}")
print("pid", os.getpid(), flush=True)
if RANK == VICTIM:
    while True:
        time.sleep(1)
try:
    big = np.ones(1 << 22, "float32")
    group.allreduce(address(big), address(big), big.size, DTYPES["float32"], OPS["sum"], TIMEOUT)
except GroupError as error:
    print("failed", time.time(), error.rank, str(error), flush=True)
"""


def failures(outputs: list[str], victim: int) -> list[tuple[float, int, str]]:
    """When, about whom and how each of the others failed."""
    out = []
    for rank, text in enumerate(outputs):
        if rank != victim:
            match = re.search(r"^failed (\S+) (\S+) (.*)", text, re.MULTILINE)
            assert match, f"rank {rank} did not fail:\n{text}"
            out.append((float(match[1]), int(match[2]), match[3]))
    return out


@pytest.mark.parametrize("victim", [2, 3])
def test_a_killed_rank_is_named_by_all(ranks, spaces, victim):
    ranks.start(LAYOUTS["2x2"], f"VICTIM, TIMEOUT = {victim}, 120.0\n" + WAITING, spaces(["a", "b"]))
    for rank in range(4):
        ranks.reached(f"ready{rank}")
    time.sleep(0.3)  # the others are in the call
    killed = time.time()
    pid = int(re.search(r"pid (\d+)", ranks.processes[victim].stdout.readline())[1])
    import os

    os.kill(pid, signal.SIGKILL)
    for when, rank, text in failures(ranks.outputs(), victim):
        assert rank == victim and f"rank {victim}" in text.lower() and str(pid) in text and re.search(r"\bnode b\b", text), text
        assert when - killed < 10, text  # a second, were the machine idle


def test_a_node_that_is_cut_off_is_named(ranks, spaces):
    made = spaces(["a", "b", "c"])
    ranks.start(["a", "b", "c"], "VICTIM, TIMEOUT = 2, 120.0\n" + WAITING, made)
    for rank in range(3):
        ranks.reached(f"ready{rank}")
    made.cut("c")
    outputs = [ranks.processes[rank].communicate(timeout=60)[0] for rank in (0, 1)]
    for _, rank, text in failures([*outputs, ""], 2):
        assert rank == 2 and "node c" in text and "cannot be reached" in text, text


def test_a_stopped_rank_is_named_at_the_timeout(ranks, spaces):
    ranks.start(["a", "b", "c"], "VICTIM, TIMEOUT = 2, 3.0\n" + WAITING, spaces(["a", "b", "c"]))
    for rank in range(3):
        ranks.reached(f"ready{rank}")
    ranks.processes[2].send_signal(signal.SIGSTOP)
    outputs = [ranks.processes[rank].communicate(timeout=60)[0] for rank in (0, 1)]
    for _, rank, text in failures([*outputs, ""], 2):
        assert rank == 2 and "rank 2 (node c" in text and "does not answer" in text, text


def test_interrupts_come_through(ranks):
    ranks.start(
        ["a", "b"],
        """
        group = open_group()
        mark(f"ready{RANK}")
        a = np.ones(10, "float32")
        if RANK == 1:
            await_mark("interrupted")
        try:
            group.allreduce(address(a), address(a), 10, DTYPES["float32"], OPS["sum"])
        except KeyboardInterrupt:
            print("interrupted")
            mark("interrupted")
        except GroupError as error:
            print("failed", error)
        """,
    )
    ranks.reached("ready0")
    ranks.reached("ready1")
    time.sleep(0.3)
    ranks.processes[0].send_signal(signal.SIGINT)
    first, second = ranks.check()
    assert "interrupted" in first and "failed" in second and "interrupted in" in second


def test_a_forked_child_does_not_keep_its_parents_connections(ranks):
    ranks.start(
        ["a", "b"],
        """
        group = open_group()
        a = np.ones(10, "float32")
        group.allreduce(address(a), address(a), 10, DTYPES["float32"], OPS["sum"])
        if RANK == 1:
            if os.fork() == 0:
                os.close(1), os.close(2)
                await_mark("over")
                os._exit(0)
            os.kill(os.getpid(), 9)
        try:
            group.allreduce(address(a), address(a), 10, DTYPES["float32"], OPS["sum"])
        except GroupError as error:
            print("failed", error)
        mark("over")
        """,
    )
    assert "failed" in ranks.outputs()[0]


def test_it_needs_the_right_token(ranks):
    code = """
    os.environ["RAY_AUTH_TOKEN"] = f"secret{RANK}"
    try:
        open_group(timeout=15)
    except GroupError as error:
        print("failed", error)
    """
    ranks.start(["a", "b"], code)
    assert "RAY_AUTH_TOKEN" in "".join(ranks.check())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_calls_that_do_not_fit_between_nodes(ranks, layout):
    """Also those that go as messages from rank to rank, where each would wait for what the other never sends."""
    ranks.start(
        layout,
        """
        a = np.ones(100 * SIZE, "float32")
        f32, last = DTYPES["float32"], RANK == SIZE - 1
        calls = {
            "kind": lambda g: (g.gather if last else g.scatter)(address(a), address(a), 10, f32, 0),
            "type": lambda g: g.alltoall(address(a), address(a), 10, DTYPES["int64"] if last else f32),
            "root": lambda g: g.gather(address(a), address(a), 10, f32, SIZE - 1 if last else 0),
            "other": lambda g: g.barrier() if last else g.alltoall(address(a), address(a), 10, f32),
        }
        for name, call in calls.items():
            group = open_group(name)
            mark(f"opened {name}{RANK}")
            for rank in range(SIZE):
                await_mark(f"opened {name}{rank}")     # one that still opens its end would fail there
            began = time.monotonic()
            try:
                call(group)
                group.barrier()
                print("went well", name)
            except GroupError as error:
                print("failed", time.monotonic() - began < 50, name, error)      # not at the timeout
            mark(f"{name}{RANK}")
            for rank in range(SIZE):
                await_mark(f"{name}{rank}")
            group.close()
        """,
    )
    for out in ranks.check():
        lines = out.splitlines()
        assert len(lines) == 4, out
        for line in lines:
            assert line.startswith("failed True") and "fit" in line and f"rank {len(layout) - 1}" in line, out


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_that_cannot_open_its_end_is_named_by_all(ranks, victim):
    ranks.start(
        ["a", "b", "c"],
        f"""
        if RANK == {victim}:
            os.environ["RAYGO_COLLECTIVE_ADDRESS"] = "192.0.2.7"     # which no machine has
        began = time.monotonic()
        try:
            open_group(timeout=100)
        except GroupError as error:
            print("failed", error.rank, error)
        assert time.monotonic() - began < 80      # not at the timeout
        """,
    )
    for out in ranks.check():
        assert f"rank {victim} cannot listen at 192.0.2.7" in out, out
