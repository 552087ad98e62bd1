"""Ranks that die, freeze, leave, fork, or call something else: everybody else is told who and what, and nobody waits for ever."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, at
from ranks import PATIENCE, FolderStore, Rank, RankError, until

from raygo import _binding

F32 = DTYPES["float32"]


def caught(call: Callable[[], Any]) -> tuple[str, int, int, float]:
    began = time.monotonic()
    with pytest.raises(_binding.GroupError) as error:
        call()
    return str(error.value), error.value.code, error.value.rank, time.monotonic() - began


def waits_for_the_dead(rank: Rank, how: str) -> Any:
    g = rank.group()
    x = np.ones(4_000_000, np.float32)
    if rank.rank == 1:
        if how == "in a call":
            work = g.ibarrier()
            work.wait(PATIENCE)
            g.iallreduce(at(x), at(x), len(x), F32, 0, x)
            time.sleep(0.05)
        else:
            g.barrier()
        rank.mark("ready")
        time.sleep(PATIENCE)
    g.barrier()
    rank.mark("ready")
    if how == "p2p":
        text, code, who, _ = caught(lambda: g.recv(at(x), 10, F32, 1))
    elif how == "started":
        work = g.iallreduce(at(x), at(x), 10, F32, 0, x)
        text, code, who, _ = caught(work.wait)
    else:
        text, code, who, _ = caught(lambda: [g.allreduce(at(x), at(x), len(x), F32, 0) for _ in range(3)])
    ended = time.time()
    # Every later call fails with the same words, and a new group can be made at once by those who live.
    assert caught(g.barrier)[0] == text
    assert str(g.broken()) == text
    live = [r for r in range(rank.size) if r != 1]
    g2 = _binding.Group("after", live.index(rank.rank), len(live), FolderStore(rank.folder), timeout=PATIENCE)
    y = np.ones(10, np.float32)
    g2.allreduce(at(y), at(y), 10, F32, 0)
    assert (y == len(live)).all()
    return text, code, who, ended


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("how", ["outside", "in a call", "started", "p2p"])
def test_killed_rank_is_named(launch: Callable[..., Any], size: int, how: str) -> None:
    ranks = launch(size, waits_for_the_dead, how)
    ranks.await_mark("ready")
    pid = ranks.pid(1)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    for r in range(size):
        if r == 1:
            continue
        result = ranks.result(r)
        assert not isinstance(result, RankError), result
        text, code, who, ended = result
        assert code == 36 and who == 1
        assert re.search(rf"rank 1 \(pid {pid} on node \S+\) of group g died", text), text
        assert ended - killed < 10  # a second, where the machine has one to spare


def frozen(rank: Rank) -> Any:
    g = rank.group(timeout=1.5)
    x = np.ones(10, np.float32)
    g.barrier()
    rank.mark("ready")
    if rank.rank == 2:
        rank.await_mark("never", 0)
    rank.await_mark("stopped", 3)
    return caught(lambda: g.allreduce(at(x), at(x), 10, F32, 4))


def test_frozen_rank_is_named_at_the_timeout(launch: Callable[..., Any]) -> None:
    ranks = launch(3, frozen)
    ranks.await_mark("ready")
    os.kill(ranks.pid(2), signal.SIGSTOP)
    (ranks.folder / "mark.stopped.3").touch()
    texts = []
    for r in (0, 1):
        text, code, _, took = ranks.result(r)
        texts.append(text)
        assert code == 2
        assert took > 1
    assert texts[0] == texts[1]
    assert re.search(r"gave up allreduce of 10 × float32 \(max\) \(call 2\) after 1\.\d* s: missing are ", texts[0]), texts[0]
    assert re.search(rf"rank 2 \(pid {ranks.pid(2)} on node \S+\), stopped by a signal", texts[0]), texts[0]


def busy_elsewhere(rank: Rank) -> str:
    g = rank.group(timeout=0.5)
    g.barrier()
    if rank.rank == 0:
        rank.await_mark("done", 1)
        return caught(g.barrier)[0]
    text = caught(g.barrier)[0]
    rank.mark("done")
    return text


def test_rank_that_does_not_come_is_named(together: Callable[..., Any]) -> None:
    first, second = together(2, busy_elsewhere)
    assert first == second
    assert "missing are rank 0" in first and "outside of any call after 1" in first


MISFITS = {
    "kind": lambda g, x, r: g.allreduce(at(x), at(x), 10, F32, 0) if r else g.barrier(),
    "count": lambda g, x, r: g.allreduce(at(x), at(x), 10 + r, F32, 0),
    "large count": lambda g, x, r: g.allreduce(at(x), at(x), 100 + r * 200_000, F32, 0),
    "chunks": lambda g, x, r: g.allreduce(at(x), at(x), 100_000 + r * 100_000, F32, 0),
    "dtype": lambda g, x, r: g.allreduce(at(x), at(x), 10, F32 - r, 0),
    "op": lambda g, x, r: g.allreduce(at(x), at(x), 10, F32, r),
    "root": lambda g, x, r: [g.broadcast(at(x), 10, F32, r), g.barrier()],
    "broadcast": lambda g, x, r: [g.broadcast(at(x), 10 + r, F32, 0), g.barrier()],
    "gather": lambda g, x, r: [g.gather(at(x), at(x) + 4000, 10 + r, F32, 0), g.barrier()],
    "scatter": lambda g, x, r: [g.scatter(at(x), at(x) + 4000, 10 + r, F32, 0), g.barrier()],
    "allgather": lambda g, x, r: g.allgather(at(x), at(x) + 4000, 10 + r, F32),
    "reducescatter": lambda g, x, r: g.reducescatter(at(x), at(x) + 4000, 10 + r, F32, 0),
    "alltoall": lambda g, x, r: g.alltoall([(at(x), 5)] * 2, [(at(x), 5), (at(x), 5)] if r else [(at(x), 5), (at(x), 6)], 0, F32),
}


def misfits(rank: Rank) -> dict[str, str]:
    out = {}
    x = np.zeros(400_000, np.float32)
    for name, call in MISFITS.items():
        g = rank.group(name)
        out[name] = caught(lambda call=call, g=g: call(g, x, rank.rank))[0]
        assert caught(g.barrier)[0] == out[name]
        g.close()
    return out


def test_calls_that_do_not_fit_are_told(together: Callable[..., Any]) -> None:
    first, second = together(2, misfits)
    assert first == second
    for name, text in first.items():
        assert f"Ranks of group {name} do not fit in call 1" in text
        assert "rank 0 called" in text and "rank 1 called" in text
    assert "called barrier" in first["kind"] and "called allreduce of 10 × float32 (sum)" in first["kind"]
    assert "10 × float16" in first["dtype"] or "10 × bfloat16" in first["dtype"]


def aborted(rank: Rank) -> str:
    g = rank.group()
    if rank.rank == 0:
        # From another thread, while this one waits.
        threading.Timer(0.2, lambda: g.abort("enough")).start()
    return caught(lambda: [g.barrier() for _ in range(1 + rank.rank)] if rank.rank else g.recv(at(np.zeros(1, np.float32)), 1, F32, 1))[0]


def test_abort_ends_all_waits(together: Callable[..., Any]) -> None:
    for text in together(2, aborted):
        assert re.search(r"Rank 0 \(pid \d+ on node \S+\) aborted group g: enough", text)


def interrupted(rank: Rank) -> str:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    g = rank.group()
    if rank.rank:
        rank.await_mark("interrupted", 0)
        return caught(g.barrier)[0]
    work = g.irecv(0, 0, F32, 1)
    rank.mark("waiting")
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    assert g.broken() is None and not work.done()  # only the wait ended
    rank.mark("waiting again")
    with pytest.raises(KeyboardInterrupt):
        g.barrier()
    rank.mark("interrupted")
    return str(g.broken())


def test_control_c_ends_a_wait(launch: Callable[..., Any]) -> None:
    ranks = launch(2, interrupted)
    for mark in ("waiting", "waiting again"):
        ranks.await_mark(mark, 0)
        time.sleep(0.2)
        os.kill(ranks.pid(0), signal.SIGINT)
    for text in ranks.results():
        assert re.search(r"Rank 0 \(pid \d+ on node \S+\) of group g was interrupted in barrier", text), text


def handler_raises(rank: Rank) -> str:
    def handler(signum: int, frame: Any) -> None:
        raise OSError("from the handler")

    signal.signal(signal.SIGUSR1, handler)
    g = rank.group()
    if rank.rank:
        rank.await_mark("raised", 0)
        return "ok"
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    with pytest.raises(OSError, match="from the handler"):
        g.barrier()
    rank.mark("raised")
    return "ok"


def test_exception_of_a_signal_handler_comes_through(together: Callable[..., Any]) -> None:
    together(2, handler_raises)


def forks(rank: Rank) -> Any:
    g = rank.group()
    x = np.ones(10, np.float32)
    g.allreduce(at(x), at(x), 10, F32, 0)
    work = g.ibarrier()
    work.wait()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            texts = [caught(f)[0] for f in (g.barrier, lambda: g.abort(""), lambda: g.ibarrier(), lambda: g.recv(at(x), 1, F32, 1 - rank.rank))]
            # A group of its own works.
            alone = _binding.Group("child", 0, 1, None)
            alone.allreduce(at(x), at(x), 10, F32, 0)
            alone.close()
            g.close()
            del g
            gc.collect()
            os.write(write, "\n".join(texts).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        texts = pipe.read().splitlines()
    os.waitpid(pid, 0)
    # The child's end is no rank's end.
    time.sleep(0.3)
    g.allreduce(at(x), at(x), 10, F32, 0)
    assert g.broken() is None
    g.close()
    return texts


def test_forked_child_is_refused_and_does_no_harm(together: Callable[..., Any]) -> None:
    for texts in together(2, forks):
        assert len(texts) == 4
        assert all("made by the process that this one was forked from" in t for t in texts)


def forks_with_memory(rank: Rank) -> None:
    g = rank.group()
    m = g.alloc(1 << 20)
    np.frombuffer(m, np.uint8)[:] = 7
    work = g.irecv(0, 0, F32, 1 - rank.rank)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            del m
            gc.collect()
            os.write(write, caught(lambda: work.wait(PATIENCE))[0].encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert "was forked from" in pipe.read()
    os.waitpid(pid, 0)
    assert (np.frombuffer(m, np.uint8) == 7).all()
    g.barrier()
    g.close()


def test_forked_child_gives_back_no_memory_of_its_parent(together: Callable[..., Any]) -> None:
    together(2, forks_with_memory)


class DiesMeeting(FolderStore):
    """Ends the process that asks where its node's memory is."""

    def get(self, key: str, timeout: float) -> bytes:
        value = super().get(key, timeout)
        if "/node/" in key:
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def dies_meeting(rank: Rank) -> Any:
    store = DiesMeeting(rank.folder) if rank.rank == 1 else FolderStore(rank.folder)
    return caught(lambda: _binding.Group("g", rank.rank, rank.size, store, timeout=PATIENCE))


def test_rank_killed_in_the_meeting_is_named(launch: Callable[..., Any]) -> None:
    ranks = launch(3, dies_meeting)
    for r in (0, 2):
        text, code, who, took = ranks.result(r)
        assert (code, who) == (36, 1)
        assert re.search(rf"rank 1 \(pid {ranks.pid(1)} on node \S+\) of group g died", text), text
        assert took < PATIENCE / 2


class ComesLate(FolderStore):
    """Comes to its node's memory when the process that made it has ended."""

    def get(self, key: str, timeout: float) -> bytes:
        value = super().get(key, timeout)
        if "/node/" in key and not (self.folder / "late").exists():
            (self.folder / "late").touch()
            super().get("ended", timeout)
        return value


def comes_late(rank: Rank) -> Any:
    store = DiesMeeting(rank.folder) if rank.rank == 1 else ComesLate(rank.folder) if rank.rank == 2 else FolderStore(rank.folder)
    return caught(lambda: _binding.Group("g", rank.rank, rank.size, store, timeout=PATIENCE))


def test_who_comes_to_memory_that_is_gone_hears_why(launch: Callable[..., Any]) -> None:
    ranks = launch(3, comes_late)
    first = ranks.result(0)
    pid = ranks.pid(0)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of rank 0")
    FolderStore(ranks.folder).set("ended", b"")
    late = ranks.result(2)
    assert late[:3] == first[:3] and late[1:3] == (36, 1), late


def ends_in_order(rank: Rank) -> str:
    g = rank.group()
    g.barrier()
    if rank.rank == 1:
        return "ended"  # without close: the launcher's os._exit, as if it were killed
    return caught(g.barrier)[0]


def test_rank_that_ends_without_closing(together: Callable[..., Any]) -> None:
    assert re.search("rank 1 .*(died|left group)", together(2, ends_in_order)[0])


def leaves(rank: Rank) -> str:
    g = rank.group()
    x = np.ones(300_000, np.float32)
    g.allreduce(at(x), at(x), len(x), F32, 0)
    g.broadcast(at(x), len(x), F32, 0)
    if rank.rank == 0:
        g.close()  # at once: the others may still be reading what it sent
        return "left"
    assert (x == rank.size).all()
    return caught(g.barrier)[0]


def test_rank_that_leaves_is_named_by_the_next_call(together: Callable[..., Any]) -> None:
    for text in together(3, leaves)[1:]:
        assert re.search(r"rank 0 \(pid \d+ on node \S+\) left group g, but rank \d still calls barrier \(call 3\)", text)


def never_meets(rank: Rank) -> str:
    if rank.rank == 1:
        return "away"
    with pytest.raises(_binding.GroupError) as error:
        rank.group(timeout=0.5)
    assert error.value.code == 2
    return str(error.value)


def test_rank_that_does_not_come_to_the_meeting(together: Callable[..., Any]) -> None:
    first, _, third, fourth = together(4, never_meets)
    assert first == third == fourth
    assert "of 4 ranks, 1 did not come in time (1)" in first


def sizes_differ(rank: Rank) -> str:
    with pytest.raises(ValueError, match="rank 0 counts 3 ranks, rank 1 .* counts 4") as error:
        _binding.Group("g", rank.rank, 3 + (rank.rank == 1), FolderStore(rank.folder), timeout=PATIENCE)
    return str(error.value)


def test_ranks_that_count_differently(together: Callable[..., Any]) -> None:
    assert len(set(together(3, sizes_differ))) == 1


def waits_long(rank: Rank) -> None:
    g = rank.group()
    if rank.rank == 0:
        g.barrier()
    else:
        time.sleep(11)
        g.barrier()


@pytest.mark.slow
def test_long_wait_is_logged(launch: Callable[..., Any]) -> None:
    ranks = launch(2, waits_long)
    assert ranks.results() == ["ok", "ok"]
    assert re.search(r"rank 0 of group g has been in barrier \(call 1\) for 10 s; it waits for rank 1 \(pid \d+ on node \S+\), outside of any", ranks.output())


def resources() -> tuple[int, int, int]:
    maps = Path("/proc/self/maps").read_text().count("raygo-group")
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps


def many_groups(rank: Rank) -> Any:
    x = np.ones(1000, np.float32)

    def one(i: int) -> None:
        g = rank.group(f"g{i}")
        g.allreduce(at(x), at(x), 1000, F32, 4)
        g.iallreduce(at(x), at(x), 1000, F32, 4, x).wait()
        peer = 1 - rank.rank
        w = g.irecv(at(x), 1000, F32, peer)
        g.send(at(x), 1000, F32, peer)
        w.wait()
        m = g.alloc(1 << 20)
        m[:4] = b"1234"
        if i % 3 == 0:
            g.abort("for the test")
        if i % 2:
            del m
        g.close()

    for i in range(5):
        one(i)
    before = resources()
    for i in range(5, 205):
        one(i)
    gc.collect()
    return before, until(lambda: resources()[1:] == before[1:] and resources(), "threads to end", 20)


@pytest.mark.timeout(300)
def test_groups_leave_nothing(together: Callable[..., Any]) -> None:
    for before, after in together(2, many_groups):
        assert before == after
        assert after[2] == 0


def killed_with_memory(rank: Rank) -> None:
    g = rank.group()
    m = g.alloc(64 << 20)
    np.frombuffer(m, np.uint8)[:] = 1
    g.barrier()
    rank.mark("ready")
    time.sleep(PATIENCE)


def holders(inode: str) -> list[str]:
    """Who on this machine maps the memory file, or has it open."""
    out = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text()
            files = [(os.readlink(fd), str(os.stat(fd).st_ino)) for fd in (process / "fd").iterdir()]
        except OSError:
            continue  # it ended meanwhile
        mapped = any("raygo-group" in line and inode in line.split() for line in maps.splitlines())
        if mapped or any("raygo-group" in name and ino == inode for name, ino in files):
            out.append(process.name)
    return out


def test_memory_goes_with_the_last_process(launch: Callable[..., Any]) -> None:
    ranks = launch(3, killed_with_memory)
    ranks.await_mark("ready")
    pids = [ranks.pid(r) for r in range(3)]
    inodes = {line.split()[4] for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "raygo-group" in line}
    assert len(inodes) == 1
    inode = inodes.pop()
    assert sorted(holders(inode)) == sorted(map(str, pids))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not holders(inode), "the group's memory to go")


def child_writes(rank: Rank) -> None:
    """A child has its parent's arrays as they were: what it writes is its own, before and after its parent closed the group."""
    g = rank.group()
    m = g.alloc(1 << 20)
    x = np.frombuffer(m, np.float32)
    x[:] = 1
    for closed in (False, True):
        if closed:
            g.close()
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                seen = int(x.sum())
                x[:] = 7
                grandchild = os.fork()
                if not grandchild:
                    x[:] = 9
                    os._exit(0)
                os.waitpid(grandchild, 0)
                os.write(write, f"{seen} {int(x.sum())}".encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            assert pipe.read() == f"{len(x)} {7 * len(x)}"
        os.waitpid(pid, 0)
        assert (x == 1).all()
        if not closed:
            y = np.frombuffer(g.alloc(x.nbytes), np.float32)
            g.allreduce(at(x), at(y), len(x), F32, 0)
            assert (y == rank.size).all()


def test_what_a_forked_child_writes_is_its_own(together: Callable[..., Any]) -> None:
    together(2, child_writes)


def aborted_in_place(rank: Rank) -> int:
    """The other rank's part of the result, as far as it was written after the abort."""
    g = rank.group()
    x = np.frombuffer(g.alloc(256 << 20), np.float32)
    begins, ends = (0, len(x) // 2 - 1) if rank.rank == 0 else (len(x) // 2, len(x) - 1)
    x[:] = 1
    g.barrier()
    work = g.iallreduce(at(x), at(x), len(x), F32, 0, x)
    while x[begins] == 1 and not work.done():  # until the reduction has begun, or will not because of the other's abort
        time.sleep(0)
    if rank.rank == 0:
        with pytest.raises(_binding.GroupError):
            g.abort("enough")
            work.wait()
    else:
        with pytest.raises(_binding.GroupError, match="enough"):
            work.wait()
    return int(x[ends])


def test_reduction_in_place_sees_an_abort(launch: Callable[..., Any]) -> None:
    """Whether the abort comes before its end is up to the scheduler; that it never does would be a fault."""
    for _ in range(10):
        ranks = launch(2, aborted_in_place)
        results = ranks.results()
        ranks.end()
        if 1 in results:
            return
    pytest.fail(f"after an abort each rank still reduced all of its part: {results}")
