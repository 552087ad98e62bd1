"""What collectives compute, against NumPy, between real processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, OPS, at, make, pairs, reduced, same
from ranks import Rank

# Around the borders of the algorithms: nothing, one, odd, the last small size, one more than a chunk, several chunks.
BYTES = (0, 8, 1000, 32 << 10, (32 << 10) + 8, (256 << 10) + 72, (1 << 20) + 8, (2 << 20) + 4096)


def all_of(rank: Rank, seed: int, dtype: str, n: int) -> list[Any]:
    """What every rank has; each knows it all, so that it can check."""
    return [make(np.random.default_rng([seed, r]), dtype, n) for r in range(rank.size)]


def every_type_and_operation(rank: Rank, sizes: tuple[int, ...]) -> None:
    g = rank.group()
    for k, (dtype, op) in enumerate(pairs()):
        for nbytes in sizes:
            item = np.dtype("uint16" if dtype == "bfloat16" else dtype).itemsize
            n = nbytes // item
            given = all_of(rank, k, dtype, n)
            want = reduced(given, dtype, op)
            mine, out = given[rank.rank].copy(), np.zeros_like(given[0])
            g.allreduce(at(mine), at(out), n, DTYPES[dtype], OPS[op])
            assert same(out, want), (dtype, op, n)
            assert same(mine, given[rank.rank])
            root = k % rank.size
            g.reduce(at(mine), at(mine) if rank.rank == root else 0, n, DTYPES[dtype], OPS[op], root)
            assert same(mine, want if rank.rank == root else given[rank.rank]), (dtype, op, n)
            blocks = all_of(rank, 1000 + k, dtype, n * rank.size)
            part = np.zeros_like(out)
            g.reducescatter(at(blocks[rank.rank]), at(part), n, DTYPES[dtype], OPS[op])
            assert same(part, reduced(blocks, dtype, op)[rank.rank * n : (rank.rank + 1) * n]), (dtype, op, n)
    g.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_every_type_and_operation(together: Callable[..., Any], size: int) -> None:
    together(size, every_type_and_operation, (1000, (33 << 10) + 24) if size < 8 else (120, 34 << 10))


def every_size(rank: Rank) -> None:
    g = rank.group()
    for nbytes in BYTES if rank.size < 8 else BYTES[:6]:
        for dtype, off in (("float32", 0), ("bfloat16", 1), ("int64", 3)):
            code = DTYPES[dtype]
            item = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
            n = nbytes // item
            given = all_of(rank, nbytes, dtype, n)
            # An address that is no multiple of anything.
            room = np.zeros(nbytes + 64, np.uint8)
            mine = room[off : off + n * item].view(given[0].dtype) if n else given[0].copy()
            mine[:] = given[rank.rank]
            g.allreduce(at(mine), at(mine), n, code, 0)
            assert same(mine, reduced(given, dtype, "sum")), (nbytes, dtype)

            root = nbytes % rank.size
            mine[:] = given[rank.rank]
            g.broadcast(at(mine), n, code, root)
            assert same(mine, given[root]), (nbytes, dtype)

            mine[:] = given[rank.rank]
            everything = np.zeros(n * rank.size, given[0].dtype)
            g.allgather(at(mine), at(everything), n, code)
            assert same(everything, np.concatenate(given)), (nbytes, dtype)

            everything[:] = 0
            g.gather(at(mine), at(everything) if rank.rank == root else 0, n, code, root)
            assert same(everything, np.concatenate(given) if rank.rank == root else np.zeros_like(everything)), (nbytes, dtype)

            source = np.concatenate(given)
            mine[:] = 0
            g.scatter(at(source) if rank.rank == root else 0, at(mine), n, code, root)
            assert same(mine, given[rank.rank]), (nbytes, dtype)

            crossed = all_of(rank, nbytes + 1, dtype, n * rank.size)
            g.alltoall(at(crossed[rank.rank]), at(everything), n, code)
            me = slice(rank.rank * n, (rank.rank + 1) * n)
            assert same(everything, np.concatenate([c[me] for c in crossed])), (nbytes, dtype)
    g.barrier()
    g.close()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_every_size(together: Callable[..., Any], size: int) -> None:
    together(size, every_size)


def uneven(rank: Rank) -> None:
    g = rank.group()
    code = DTYPES["int32"]
    for scale in (1, 1000, 100_000):
        counts = [(r * 7 % 4) * scale + (r == 1) for r in range(rank.size)]
        given = [make(np.random.default_rng([scale, r]), "int32", counts[r]) for r in range(rank.size)]
        mine = given[rank.rank].copy()
        outs = [np.zeros(c, np.int32) for c in counts]
        blocks = [(at(o), c) for o, c in zip(outs, counts, strict=True)]
        g.allgather(at(mine), blocks, counts[rank.rank], code)
        assert all(same(o, w) for o, w in zip(outs, given, strict=True))

        for o in outs:
            o[:] = 0
        g.gather(at(mine), blocks if rank.rank == 1 else 0, counts[rank.rank], code, 1)
        assert all(same(o, w if rank.rank == 1 else np.zeros_like(w)) for o, w in zip(outs, given, strict=True))

        mine[:] = 0
        g.scatter([(at(w), c) for w, c in zip(given, counts, strict=True)] if rank.rank == 1 else 0, at(mine), counts[rank.rank], code, 1)
        assert same(mine, given[rank.rank])

        all_given = [[make(np.random.default_rng([scale, r, i]), "int32", counts[i]) for i in range(rank.size)] for r in range(rank.size)]
        g.reducescatter([(at(a), len(a)) for a in all_given[rank.rank]], at(mine), counts[rank.rank], code, 0)
        assert same(mine, reduced([a[rank.rank] for a in all_given], "int32", "sum"))

        # Rank i sends i + 2 j elements, times the scale, to rank j.
        def sent(i: int, j: int, scale: int = scale) -> Any:
            return make(np.random.default_rng([scale, i, j, 5]), "int32", (i + 2 * j) * scale)

        outgoing = [sent(rank.rank, j) for j in range(rank.size)]
        incoming = [np.zeros_like(sent(i, rank.rank)) for i in range(rank.size)]
        g.alltoall([(at(a), len(a)) for a in outgoing], [(at(a), len(a)) for a in incoming], 0, code)
        assert all(same(a, sent(i, rank.rank)) for i, a in enumerate(incoming))
    g.close()


@pytest.mark.parametrize("size", [2, 3, 8])
def test_blocks_of_different_sizes(together: Callable[..., Any], size: int) -> None:
    together(size, uneven)


def in_the_arena(rank: Rank) -> None:
    g = rank.group()
    code = DTYPES["float32"]
    for n in (1000, 100_003, 1_000_001):
        given = all_of(rank, n, "float32", n)
        views = [g.alloc(n * 4), g.alloc(n * 4)]
        mine, out = (np.frombuffer(v, np.float32) for v in views)
        plain = np.zeros(n, np.float32)
        for op in ("sum", "avg", "max"):
            want = reduced(given, "float32", op)
            mine[:] = given[rank.rank]
            g.allreduce(at(mine), at(mine), n, code, OPS[op])  # all in the arena, in place
            assert same(mine, want)
            mine[:] = given[rank.rank]
            g.allreduce(at(mine), at(out), n, code, OPS[op])  # into another place
            assert same(out, want)
            assert same(mine, given[rank.rank])
            g.allreduce(at(mine), at(plain), n, code, OPS[op])  # out of it
            assert same(plain, want)
            # Some are there, some are not.
            source = mine if rank.rank % 2 else given[rank.rank].copy()
            g.allreduce(at(source), at(source), n, code, OPS[op])
            assert same(source, want)
            mine[:] = given[rank.rank]
            last = rank.size - 1
            g.reduce(at(mine), at(out) if rank.rank == last else 0, n, code, OPS[op], last)
            if rank.rank == last:
                assert same(out, want)
        del mine, out, views
    view = g.alloc(100)
    again = np.frombuffer(view, np.uint8)
    assert not again.any()  # what was there before is gone
    again[:] = 7
    g.close()
    assert (again == 7).all()  # views outlive the group


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_arrays_in_the_arena(together: Callable[..., Any], size: int) -> None:
    together(size, in_the_arena)


def many_ranks(rank: Rank) -> int:
    g = rank.group()
    x = np.full(100_000, rank.rank, np.int64)
    g.allreduce(at(x), at(x), len(x), DTYPES["int64"], 0)
    assert (x == rank.size * (rank.size - 1) // 2).all()
    y = np.full(1000, rank.rank, np.int64)
    z = np.zeros(1000 * rank.size, np.int64)
    g.allgather(at(y), at(z), 1000, DTYPES["int64"])
    assert (z.reshape(rank.size, 1000) == np.arange(rank.size)[:, None]).all()
    crossed = np.zeros_like(z)
    g.alltoall(at(z), at(crossed), 1000, DTYPES["int64"])
    assert (crossed.reshape(rank.size, 1000) == rank.rank).all()
    for _ in range(20):
        g.barrier()
    g.close()
    return g.local_size


@pytest.mark.timeout(300)
def test_sixty_four_ranks(together: Callable[..., Any]) -> None:
    assert together(64, many_ranks) == [64] * 64


def too_many(rank: Rank) -> str:
    try:
        rank.group()
    except ValueError as error:
        return str(error)
    return "made"


@pytest.mark.timeout(300)
def test_sixty_five_ranks_are_too_many(together: Callable[..., Any]) -> None:
    assert all("more than 64 ranks" in text for text in together(65, too_many))


def several_groups(rank: Rank) -> None:
    g = rank.group()
    halves = g.split(rank.rank % 2, -rank.rank)
    assert halves.size == (rank.size + 1 - rank.rank % 2) // 2
    members = sorted(range(rank.rank % 2, rank.size, 2), reverse=True)
    assert members[halves.rank] == rank.rank
    x = np.array([rank.rank], np.int32)
    halves.allreduce(at(x), at(x), 1, DTYPES["int32"], 0)
    assert x[0] == sum(members)
    nobody = g.split(-1 if rank.rank else 0, 0)
    assert (nobody is None) == (rank.rank > 0)
    if nobody:
        nobody.allreduce(at(x), at(x), 1, DTYPES["int32"], 0)
        assert x[0] == sum(members)
    others = [rank.group(f"other{i}") for i in range(5)]
    works = []
    arrays = [np.full(50_000, rank.rank + i, np.float32) for i in range(5)]
    for o, a in zip(others, arrays, strict=True):
        works.append(o.iallreduce(at(a), at(a), len(a), DTYPES["float32"], 0, a))
    # Waited for in another order on each rank.
    for w in works if rank.rank % 2 else reversed(works):
        w.wait()
    total = rank.size * (rank.size - 1) // 2
    assert all((a == total + i * rank.size).all() for i, a in enumerate(arrays))
    for o in (*others, halves, g):
        o.close()


@pytest.mark.parametrize("size", [2, 5])
def test_several_groups_and_parts(together: Callable[..., Any], size: int) -> None:
    together(size, several_groups)
