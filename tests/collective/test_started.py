"""Calls that are started: order, waiting, callbacks, cancelling."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, at
from ranks import Rank

from raygo import _binding

F32 = DTYPES["float32"]


def in_order(rank: Rank) -> None:
    g = rank.group()
    x, n, ended = np.ones(1000, np.float32), 1000, []
    works = [g.iallreduce(at(x), at(x), n, F32, 0, x, lambda i=i: ended.append(i)) for i in range(20)]
    g.allreduce(at(x), at(x), n, F32, 0)  # after them
    assert (x == float(rank.size) ** 21).all()
    assert all(w.done() for w in works)
    assert ended == list(range(20))
    assert [w.wait() for w in works] == [-1] * 20
    assert [w.exception() for w in works] == [None] * 20

    # Nobody keeps the work, nobody waits: the array stays until the call has ended.
    big = np.ones(1 << 20, np.float32)
    g.iallreduce(at(big), at(big), len(big), F32, 0, big)
    del big
    g.barrier()

    every = {
        "ibarrier": (),
        "ireduce": (at(x), at(x), n, F32, 4, 0),
        "ibroadcast": (at(x), n, F32, 0),
        "iallgather": (at(x), [(at(x), n)] * rank.size, n, F32),
        "iscatter": ([(at(x), n)] * rank.size, at(x), n, F32, 0),
        "igather": (at(x), [(at(x), n)] * rank.size, n, F32, 0),
    }
    for name, args in every.items():
        assert getattr(g, name)(*args, keep=x).wait() == -1
    y = np.zeros((rank.size, n), np.float32)
    g.iallgather(at(x), at(y), n, F32, y).wait(30)
    z = np.zeros_like(y)
    g.ialltoall(at(y), at(z), n, F32, (y, z)).wait(timeout=30)
    g.ireducescatter(at(y), at(x), n, F32, 0, (y, x)).wait()
    g.close()


def test_calls_take_effect_in_order(together: Callable[..., Any]) -> None:
    together(3, in_order)


def from_threads(rank: Rank) -> None:
    """Groups in several threads at once, and one group used by several threads where order does not matter."""
    groups = [rank.group(f"t{i}") for i in range(4)]
    failures = []

    def work(g: Any) -> None:
        try:
            x = np.ones(5000, np.float32)
            for _ in range(100):
                g.allreduce(at(x), at(x), 5000, F32, 4)
            assert (x == 1).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(g,)) for g in groups] + [threading.Thread(target=work, args=(groups[0],))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    for g in groups:
        g.close()


def test_threads(together: Callable[..., Any]) -> None:
    together(2, from_threads)


def waiting(rank: Rank) -> None:
    g = rank.group()
    x = np.ones(10, np.float32)
    if rank.rank == 0:
        work = g.iallreduce(at(x), at(x), 10, F32, 0, x)
        with pytest.raises(TimeoutError, match="goes on"):
            work.wait(0.05)
        assert not work.done()
        assert not work.cancel() or rank.mark("bad")  # it has begun
        rank.mark("waited")
        work.wait()
    else:
        rank.await_mark("waited", 0)
        g.allreduce(at(x), at(x), 10, F32, 0)
    assert (x == 2).all()
    g.close()


def test_end_of_a_wait_is_not_the_end_of_the_call(together: Callable[..., Any]) -> None:
    together(2, waiting)


def fails(rank: Rank) -> None:
    g = rank.group()
    x, told = np.ones(10, np.float32), []
    work = None
    ready = threading.Event()

    def ended() -> None:
        ready.wait(30)
        told.append(work.exception())

    if rank.rank == 0:
        work = g.iallreduce(at(x), at(x), 10, F32, 0, x, ended)
        ready.set()
        g.abort("enough")
        with pytest.raises(_binding.GroupError, match="enough"):
            work.wait()
        assert len(told) == 1 and "enough" in str(told[0])
        assert str(work.exception()) == str(told[0])
        rank.mark("aborted")
    else:
        rank.await_mark("aborted", 0)


def test_callback_knows_what_the_call_failed_with(together: Callable[..., Any]) -> None:
    together(2, fails)


def cancelled(rank: Rank) -> str:
    g = rank.group()
    x = np.ones(10, np.float32)
    if rank.rank == 0:
        first = g.iallreduce(at(x), at(x), 10, F32, 0, x)
        second = g.ibarrier()
        assert second.cancel()
        with pytest.raises(_binding.GroupError, match="cancelled barrier"):
            second.wait()
        with pytest.raises(_binding.GroupError, match="cancelled barrier"):
            first.wait()
        with pytest.raises(_binding.GroupError, match="cancelled barrier"):
            g.barrier()
        rank.mark("cancelled")
        return "cancelled barrier"
    rank.await_mark("cancelled", 0)
    with pytest.raises(_binding.GroupError) as error:
        g.allreduce(at(x), at(x), 10, F32, 0)
    return str(error.value)


def test_cancelled_collective_breaks_the_group(together: Callable[..., Any]) -> None:
    assert all("cancelled barrier" in text for text in together(2, cancelled))


def queue_is_bounded(rank: Rank) -> None:
    g = rank.group()
    x = np.zeros(1, np.float32)
    if rank.rank == 0:
        started = []

        def start() -> None:
            started.extend(g.iallreduce(at(x), at(x), 1, F32, 0, x) for _ in range(1500))

        thread = threading.Thread(target=start)
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()  # it waits for room
        rank.mark("full")
        thread.join()
        started[-1].wait()
    else:
        rank.await_mark("full", 0)
        for _ in range(1500):
            g.allreduce(at(x), at(x), 1, F32, 0)
    g.close()


def test_queue_is_bounded(together: Callable[..., Any]) -> None:
    together(2, queue_is_bounded)


def closed_with_work(rank: Rank) -> None:
    g = rank.group()
    x = np.zeros(10, np.float32)
    if rank.rank == 0:
        receive = g.irecv(at(x), 10, F32, 1, 5, x)
        works = [g.ibarrier() for _ in range(3)]
        g.close()
        for w in (receive, *works):
            assert w.done()
            with pytest.raises(_binding.GroupError, match="closed"):
                w.wait()
        with pytest.raises(_binding.GroupError, match="closed"):
            g.barrier()
        g.close()
        rank.mark("closed")
    else:
        rank.await_mark("closed", 0)
        with pytest.raises(_binding.GroupError, match="Rank 0 .* closed group g while a call of its own was under way"):
            g.barrier()


def test_close_ends_what_was_started(together: Callable[..., Any]) -> None:
    together(2, closed_with_work)


def closes_in_a_callback(rank: Rank) -> list[str]:
    x, said = np.ones(10, np.float32), []
    to = 1 - rank.rank
    for i, name in enumerate(("iallreduce", "isend", "irecv", "last")):
        g = rank.group(f"g{i}")
        threads = threading.active_count()
        ended = threading.Event()

        def done(g: Any = g if name != "last" else None, ended: threading.Event = ended) -> None:
            if g is not None:
                g.close()
            ended.set()

        # The other side of a message must not have left before it came.
        g.allreduce(at(x), at(x), 10, F32, 4)
        if name in ("isend", "irecv"):
            sends = (name == "isend") == (rank.rank == 0)
            work = getattr(g, "isend" if sends else "irecv")(at(x), 10, F32, to, 5, x, done)
        else:
            work = g.iallreduce(at(x), at(x), 10, F32, 4, x, done)
        del done
        if name == "last":
            del g, work  # whose last reference goes on the group's thread
        assert ended.wait(60), name
        if name != "last":
            assert work.wait() in (-1, to)  # from whom it came
            with pytest.raises(_binding.GroupError, match="closed"):
                g.barrier()
        assert threading.active_count() <= threads
        said.append(name)
    return said


def test_group_closed_when_a_call_has_ended(together: Callable[..., Any]) -> None:
    assert together(2, closes_in_a_callback) == [["iallreduce", "isend", "irecv", "last"]] * 2


def calls_in_a_callback(rank: Rank) -> None:
    g = rank.group()
    x, more, full, said = np.ones(4, np.float32), [], threading.Event(), []

    def done() -> None:
        full.wait(60)
        for call in (g.barrier, lambda: more[0].wait()):
            more.append(g.iallreduce(at(x), at(x), 4, F32, 4, x))  # though there is no room
            with pytest.raises(_binding.GroupError, match="wait for ever") as error:
                call()
            said.append(error.value.code)

    first = g.iallreduce(at(x), at(x), 4, F32, 4, x, done)
    queue = [g.iallreduce(at(x), at(x), 4, F32, 4, x) for _ in range(1024)]
    full.set()
    for work in [first, *queue]:
        work.wait(60)
    for work in more:
        work.wait(60)
    assert said == [23, 23]
    assert (x == 1).all()
    g.barrier()
    g.close()


def test_calls_of_a_callback_wait_for_nothing(together: Callable[..., Any]) -> None:
    together(2, calls_in_a_callback)
