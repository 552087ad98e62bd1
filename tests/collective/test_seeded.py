"""Random calls in random groups, the same on all ranks, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, OPS, at, make, pairs, reduced, same
from ranks import Rank


class Soak:
    """One rank's part. `plan` is the same on all ranks, `rng` never decides what is called."""

    def __init__(self, rank: Rank, seed: int) -> None:
        self.rank, self.seed = rank, seed
        self.plan = np.random.default_rng(seed)
        self.groups = [rank.group()]
        self.groups += [self.groups[0].split(0, -rank.rank), self.groups[0].split(0, rank.rank)]
        self.arena: dict[int, Any] = {}
        self.pending: list[tuple[Any, Callable[[], bool], str]] = []
        self.step = 0

    def array(self, g: Any, values: Any) -> Any:
        """A copy, here and there in the arena."""
        if np.random.default_rng([self.seed, self.step, self.rank.rank]).random() < 0.3 and values.nbytes:
            out = np.frombuffer(g.alloc(values.nbytes), values.dtype)
            out[:] = values
            return out
        return values.copy()

    def given(self, g: Any, dtype: str, n: int) -> list[Any]:
        return [make(np.random.default_rng([self.seed, self.step, r, 1]), dtype, n) for r in range(g.size)]

    def one(self) -> None:
        self.step += 1
        p = self.plan
        g = self.groups[p.integers(len(self.groups))]
        dtype, op = pairs()[p.integers(len(pairs()))]
        n = int(2 ** p.uniform(0, 19))
        root = int(p.integers(g.size))
        kind = str(p.choice(["allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather", "scatter", "alltoall", "barrier", "sendrecv"]))
        start = p.random() < 0.5
        code, size, me = DTYPES[dtype], g.size, g.rank
        if kind in ("reducescatter", "alltoall", "scatter"):
            n = max(1, n // size)
        here = slice(me * n, (me + 1) * n)
        mine = self.given(g, dtype, n * size if kind in ("reducescatter", "alltoall", "scatter") else n)
        src = self.array(g, mine[me])
        dst = np.zeros(n * size if kind in ("allgather", "gather", "alltoall") else n, src.dtype)
        call = getattr(g, ("i" if start else "") + kind, None)
        want = dst.copy()
        if kind == "barrier":
            args: tuple[Any, ...] = ()
        elif kind == "allreduce":
            args, want = (at(src), at(dst), n, code, OPS[op]), reduced(mine, dtype, op)
        elif kind == "reduce":
            args, want = (at(src), at(dst), n, code, OPS[op], root), reduced(mine, dtype, op) if me == root else want
        elif kind == "broadcast":
            dst, want = src, mine[root]
            args = (at(src), n, code, root)
        elif kind == "allgather":
            args, want = (at(src), at(dst), n, code), np.concatenate(mine)
        elif kind == "gather":
            args, want = (at(src), at(dst), n, code, root), np.concatenate(mine) if me == root else want
        elif kind == "scatter":
            args, want = (at(src), at(dst), n, code, root), mine[root][here]
        elif kind == "reducescatter":
            args, want = (at(src), at(dst), n, code, OPS[op]), reduced(mine, dtype, op)[here]
        elif kind == "alltoall":
            args, want = (at(src), at(dst), n, code), np.concatenate([m[here] for m in mine])
        else:
            after, before = (me + 1) % size, (me - 1) % size
            want = mine[before]
            sending = g.isend(at(src), n, code, after, self.step, src)
            work = g.irecv(at(dst), n, code, before, self.step, dst)
            self.pending.append((sending, lambda: True, kind))
            start, call, args = True, lambda *_, **__: work, ()
        if start:
            work = call(*args, keep=(src, dst))
            self.pending.append((work, lambda: same(dst, want), f"{kind} {dtype} {op} {n} step {self.step}"))
        else:
            call(*args)
            assert same(dst, want), (kind, dtype, op, n, self.step)
        if len(self.pending) > 12 or p.random() < 0.05:
            self.drain()

    def drain(self) -> None:
        for work, right, what in self.pending:
            work.wait()
            assert right(), what
        self.pending.clear()


def soak(rank: Rank, seed: int, steps: int) -> None:
    s = Soak(rank, seed)
    for _ in range(steps):
        s.one()
    s.drain()
    for g in reversed(s.groups):
        g.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size, seed", [(2, 1), (3, 2), (4, 3), (7, 4)])
def test_random_calls(together: Callable[..., Any], size: int, seed: int) -> None:
    together(size, soak, seed, 150)
