"""Sends and receives: tags, order, any source, many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, at
from ranks import Rank

from raygo import _binding

F32 = DTYPES["float32"]


def ring(rank: Rank) -> None:
    g = rank.group()
    after, before = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    for n in (0, 1, 1000, 65_536, 1_000_003):
        mine, theirs = np.full(n, rank.rank, np.float32), np.full(n, -1, np.float32)
        # Everybody sends first: only one that waits for nobody can begin, and large ones fit into no buffer.
        sending = g.isend(at(mine), n, F32, after, tag=n, keep=mine)
        assert g.recv(at(theirs), n, F32, before, tag=n) == before
        sending.wait()
        assert (theirs == before).all()
    g.close()


@pytest.mark.parametrize("size", [2, 3, 8])
def test_ring(together: Callable[..., Any], size: int) -> None:
    together(size, ring)


def out_of_order(rank: Rank) -> None:
    g = rank.group()
    sizes = [10, 300_000, 5, 100_000]
    if rank.rank == 0:
        for tag, n in enumerate(sizes):
            x = np.full(n, tag, np.float32)
            g.isend(at(x), n, F32, 1, tag, x)
    else:
        for tag in (3, 1, 2, 0):
            x = np.full(sizes[tag], -1, np.float32)
            g.recv(at(x), sizes[tag], F32, 0, tag)
            assert (x == tag).all()
    # Of one tag, they come in order.
    if rank.rank == 0:
        for i in range(50):
            x = np.full(1000, i, np.float32)
            g.send(at(x), 1000, F32, 1, 9)
    else:
        arrays = [np.zeros(1000, np.float32) for _ in range(50)]
        works = [g.irecv(at(a), 1000, F32, 0, 9, a) for a in arrays]
        assert [w.wait() for w in works] == [0] * 50
        assert [a[0] for a in arrays] == list(range(50))
    g.barrier()
    g.close()


def test_tags_are_taken_in_any_order_and_messages_of_one_in_theirs(together: Callable[..., Any]) -> None:
    together(2, out_of_order)


def any_source(rank: Rank) -> list[int]:
    g = rank.group()
    seen = []
    x = np.full(100, rank.rank, np.float32)
    if rank.rank:
        g.send(at(x), 100, F32, 0, 4)
    else:
        for _ in range(rank.size - 1):
            source = g.recv(at(x), 100, F32, -1, 4)
            assert (x == source).all()
            seen.append(source)
    g.barrier()
    g.close()
    return sorted(seen)


def test_receive_from_any(together: Callable[..., Any]) -> None:
    assert together(5, any_source)[0] == [1, 2, 3, 4]


def both_ways(rank: Rank) -> None:
    g = rank.group()
    n, works, arrays = 200_000, [], []
    for peer in range(rank.size):
        if peer == rank.rank:
            continue
        out, into = np.full(n, rank.rank * 10 + peer, np.float32), np.zeros(n, np.float32)
        works += [g.isend(at(out), n, F32, peer, 0, out), g.irecv(at(into), n, F32, peer, 0, into)]
        arrays.append((peer, into))
    x = np.ones(1000, np.float32)
    g.allreduce(at(x), at(x), 1000, F32, 0)  # meanwhile
    assert (x == rank.size).all()
    for w in works:
        w.wait()
    assert all((a == peer * 10 + rank.rank).all() for peer, a in arrays)
    g.close()


def test_all_at_once_beside_a_collective(together: Callable[..., Any]) -> None:
    together(4, both_ways)


def refused(rank: Rank) -> None:
    g = rank.group()
    x = np.zeros(100, np.float32)
    for call in (g.send, g.recv):
        with pytest.raises(ValueError, match="with itself"):
            call(at(x), 100, F32, rank.rank)
        with pytest.raises(ValueError, match="there is no rank 7"):
            call(at(x), 100, F32, 7)
    if rank.rank == 0:
        g.send(at(x), 50, F32, 1)
        g.send(at(x), 100, F32, 1)
    else:
        with pytest.raises(ValueError, match="Rank 1 of group g receives 400 bytes with tag 0, but rank 0 sent 200"):
            g.recv(at(x), 100, F32, 0)
        assert g.recv(at(x), 100, F32, 0) == 0  # the next one is whole
    # A receive that nothing has come for is just forgotten.
    work = g.irecv(at(x), 100, F32, 1 - rank.rank, 77, x)
    assert work.cancel()
    with pytest.raises(_binding.GroupError, match="cancelled") as error:
        work.wait()
    assert error.value.code == 3
    with pytest.raises(_binding.GroupError, match=r"recv of 100 × float32 from rank \d .*missing are rank \d") as error:
        g.recv(at(x), 100, F32, 1 - rank.rank, 78, timeout=0.05)
    assert error.value.code == 2
    late = g.irecv(at(x), 100, F32, 1 - rank.rank, 79, x, timeout=0.05)
    with pytest.raises(_binding.GroupError, match="missing are rank"):
        late.wait()
    g.barrier()
    assert g.broken() is None
    g.close()


def test_what_is_refused(together: Callable[..., Any]) -> None:
    together(2, refused)


def partner_leaves(rank: Rank) -> str:
    g = rank.group()
    x = np.full(10, 3, np.float32)
    if rank.rank == 0:
        g.send(at(x), 10, F32, 1)
        g.close()
        return ""
    y = np.zeros(10, np.float32)
    g.recv(at(y), 10, F32, 0)  # what was sent before comes
    assert (y == 3).all()
    with pytest.raises(_binding.GroupError) as error:
        g.recv(at(y), 10, F32, 0)
    g.close()
    return str(error.value)


def test_partner_that_left(together: Callable[..., Any]) -> None:
    assert "left group g" in together(2, partner_leaves)[1]


def large_and_unexpected(rank: Rank) -> None:
    g = rank.group()
    n = 80 << 20  # 320 MB, of which nobody has asked for any
    x = np.full(n, 3, np.float32) if rank.rank == 0 else np.zeros(n, np.float32)
    small = np.full(4, 5, np.float32)
    if rank.rank == 0:
        large = g.isend(at(x), n, F32, 1, 1, x)
        g.send(at(small), 4, F32, 1, 2)
        large.wait()
    else:
        small[:] = 0
        g.recv(at(small), 4, F32, 0, 2)
        assert (small == 5).all()
        g.recv(at(x), n, F32, 0, 1)
        assert (x == 3).all()
    g.close()


def test_large_message_that_nobody_wants_yet_blocks_no_other(together: Callable[..., Any]) -> None:
    together(2, large_and_unexpected)
