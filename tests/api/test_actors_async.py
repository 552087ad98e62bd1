"""Actors that run several calls at a time: asynchronous, threaded, in groups."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import raygo
from raygo.exceptions import ActorDiedError, TaskCancelledError

pytestmark = pytest.mark.usefixtures("session")


@raygo.remote
class Waiter:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self) -> str:
        await self.event.wait()
        return "released"

    async def release(self) -> None:
        self.event.set()

    async def stream(self, n: int) -> Any:
        for i in range(n):
            await asyncio.sleep(0.01)
            yield i

    async def forever(self) -> None:
        await asyncio.sleep(1000)

    async def stubborn(self) -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "went on"
        return "slept"

    def blocks(self) -> None:
        time.sleep(0.4)

    async def nested(self, refs: list[Any]) -> int:
        return sum(await asyncio.gather(*refs))

    async def name(self) -> Any:
        await asyncio.sleep(0.01)
        return raygo.get_runtime_context().get_task_id()


def test_many_calls_in_flight() -> None:
    w = Waiter.remote()
    waiting = [w.wait.remote() for _ in range(200)]
    assert raygo.wait(waiting, timeout=0.2)[0] == []
    raygo.get(w.release.remote())
    assert raygo.get(waiting, timeout=20) == ["released"] * 200
    assert len(set(raygo.get([w.name.remote() for _ in range(20)]))) == 20  # each call knows itself


def test_streams_awaits_and_cancelling() -> None:
    w = Waiter.remote()

    async def collect() -> Any:
        return [await ref async for ref in w.stream.remote(3)]

    assert asyncio.run(collect()) == [0, 1, 2]
    assert raygo.get(w.nested.remote([raygo.put(1), raygo.put(2)])) == 3
    ref = w.forever.remote()
    time.sleep(0.2)
    raygo.cancel(ref)
    with pytest.raises(TaskCancelledError):
        raygo.get(ref, timeout=10)
    stubborn, blocks = w.stubborn.remote(), w.blocks.remote()
    time.sleep(0.2)
    raygo.cancel(stubborn)
    raygo.cancel(blocks)
    assert raygo.get(stubborn, timeout=10) == "went on"  # as asyncio has it
    with pytest.raises(TaskCancelledError):
        raygo.get(blocks, timeout=10)
    assert raygo.get(w.nested.remote([])) == 0


def test_calls_under_way_when_an_actor_exits() -> None:
    @raygo.remote
    class Leaves:
        async def forever(self) -> None:
            await asyncio.sleep(1000)

        async def leave(self) -> None:
            raygo.actor.exit_actor()

    a = Leaves.remote()
    under_way = [a.forever.remote() for _ in range(3)]
    a.leave.remote()
    for ref in under_way:
        with pytest.raises(ActorDiedError):
            raygo.get(ref, timeout=10)


def test_threads_and_groups() -> None:
    @raygo.remote(max_concurrency=4)
    class Pool:
        def nap(self) -> Any:
            begin = time.time()
            time.sleep(0.3)
            return begin, time.time()

    spans = raygo.get([Pool.remote().nap.remote()] + [p.nap.remote() for p in [Pool.remote()] for _ in range(4)])[1:]
    assert max(b for b, _ in spans) < min(e for _, e in spans)

    @raygo.remote(concurrency_groups={"io": 1, "calc": 1})
    class Groups:
        @raygo.method(concurrency_group="io")
        def io(self) -> str:
            time.sleep(1)
            return "io"

        @raygo.method(concurrency_group="calc")
        def calc(self) -> str:
            return "calc"

        def plain(self) -> str:
            return "plain"

    g = Groups.remote()
    assert raygo.get(g.calc.remote()) == "calc"
    slow = g.io.remote()
    assert raygo.get([g.calc.remote(), g.plain.remote()], timeout=10) == ["calc", "plain"]
    assert raygo.wait([slow], timeout=0)[0] == []
    assert raygo.get(g.plain.options(concurrency_group="calc").remote()) == "plain"
    with pytest.raises(ValueError, match="no concurrency group 'cals'"):
        raygo.get(raygo.put(g)).plain.options(concurrency_group="cals")
    assert raygo.get(slow) == "io"


def test_methods_with_options() -> None:
    @raygo.remote
    class Many:
        @raygo.method(num_returns=2)
        def two(self) -> Any:
            return 1, 2

        def gen(self, n: int) -> Any:
            yield from range(n)

        @staticmethod
        def fixed() -> int:
            return 1

    m = Many.remote()
    assert raygo.get(list(m.two.remote())) == [1, 2] and raygo.get(m.fixed.remote()) == 1
    assert [raygo.get(r) for r in m.gen.remote(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="Invalid option keyword num_cpus for actor methods"):
        m.two.options(num_cpus=1)
    with pytest.raises(ValueError, match="generator"):
        m.two.options(num_returns="streaming")
