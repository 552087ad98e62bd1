"""References and the values behind them."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from typing import Any

import pytest

import raygo

pytestmark = pytest.mark.usefixtures("session")


@raygo.remote
def add(x: int, y: int = 1) -> int:
    return x + y


def test_identity() -> None:
    a, b = raygo.put(1), raygo.put(1)
    assert a != b and a == a and len({a, b, a}) == 2
    assert len(a.binary()) == 28 and a.hex() == a.binary().hex() and repr(a) == f"ObjectRef({a.hex()})"
    assert raygo.ObjectRef.from_hex(a.hex()) == a and raygo.ObjectRef(a.binary()) == a
    assert a.task_id().binary() == a.binary()[:24] and a.job_id().hex() == raygo.get_runtime_context().get_job_id()
    assert not a.is_nil() and a.call_site() == "" and isinstance(a.owner_address(), bytes)


def test_ids() -> None:
    for cls, size in ((raygo.TaskID, 24), (raygo.ActorID, 16), (raygo.NodeID, 28), (raygo.JobID, 4), (raygo.PlacementGroupID, 18), (raygo.WorkerID, 28)):
        nil = cls.nil()
        assert nil.is_nil() and cls.size() == size == len(nil.binary()) and cls.from_hex(nil.hex()) == nil
        assert pickle.loads(pickle.dumps(nil)) == nil and nil != b"\xff" * size
        with pytest.raises(ValueError, match="length"):
            cls(b"x")
        with pytest.raises(TypeError):
            cls("x")  # type: ignore[arg-type]
    assert raygo.JobID.from_int(5).int() == 5 and raygo.NodeID.from_random() != raygo.NodeID.from_random()
    assert raygo.get_runtime_context().get_node_id() == raygo.nodes()[0]["NodeID"]


def test_arguments_are_checked() -> None:
    ref = raygo.put(1)
    with pytest.raises(TypeError, match="wrap the ray.ObjectRef in a list"):
        raygo.put(ref)
    with pytest.raises(ValueError, match="Invalid type of object refs"):
        raygo.get(5)
    with pytest.raises(TypeError, match="not an ray.ObjectRef"):
        raygo.get([ref, 5])
    with pytest.raises(TypeError, match="lock"):
        raygo.put(threading.Lock())
    with pytest.raises(TypeError, match="owner"):
        raygo.put(1, _owner=5)
    for bad, error in (((ref,), TypeError), (([5],), TypeError), (([ref, ref],), ValueError)):
        with pytest.raises(error):
            raygo.wait(*bad)
    for number in (0, 2):
        with pytest.raises(ValueError):
            raygo.wait([ref], num_returns=number)
    assert raygo.wait([]) == ([], []) and raygo.get([]) == []


def test_wait_keeps_order_and_number() -> None:
    refs = [raygo.put(i) for i in range(3)]
    ready, rest = raygo.wait(refs, num_returns=2)
    assert ready == refs[:2] and rest == refs[2:]


def test_futures_and_await() -> None:
    assert add.remote(1).future().result(timeout=20) == 2
    assert raygo.put(5).future().result(timeout=5) == 5

    @raygo.remote
    def bad() -> None:
        raise KeyError("k")

    assert isinstance(bad.remote().future().exception(timeout=20), KeyError)

    async def main() -> Any:
        one = await add.remote(1)
        rest = await asyncio.gather(*[add.remote(i) for i in range(50)])
        with pytest.raises(KeyError):
            await bad.remote()
        return one, rest

    for _ in range(2):  # two loops, one after the other
        assert asyncio.run(main()) == (2, list(range(1, 51)))


def test_two_loops_at_a_time() -> None:
    results: dict[int, Any] = {}

    def run(k: int) -> None:
        async def main() -> Any:
            return await asyncio.gather(*[add.remote(i, k) for i in range(20)])

        results[k] = asyncio.run(main())

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {k: [i + k for i in range(20)] for k in range(3)}


def test_async_generators() -> None:
    @raygo.remote
    def count(n: int) -> Any:
        yield from range(n)

    async def main() -> Any:
        return [await ref async for ref in count.remote(4)]

    assert asyncio.run(main()) == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="ObjectRefGenerator is not supported"):
        pickle.dumps(count.remote(1))


def test_generators_that_are_dropped_before_they_begin_stop() -> None:
    @raygo.remote
    class Busy:
        def wait_for(self, refs: list[Any]) -> None:
            raygo.get(refs[0])

        def endless(self) -> Any:
            while True:
                yield None

        def ping(self) -> str:
            return "pong"

    @raygo.remote(num_cpus=0)
    class Gate:
        def __init__(self) -> None:
            self.opened = threading.Event()

        def open(self) -> None:
            self.opened.set()

        def passed(self) -> None:
            self.opened.wait(30)

    gate = Gate.options(max_concurrency=2).remote()
    busy = Busy.remote()
    waiting = busy.wait_for.remote([gate.passed.remote()])
    items = busy.endless.options(num_returns="streaming").remote()
    del items  # it stands behind the other call
    raygo.get([gate.open.remote(), waiting], timeout=30)
    assert raygo.get(busy.ping.remote(), timeout=30) == "pong"


def test_generators_that_are_retried_go_on_where_their_consumer_is() -> None:
    @raygo.remote(num_returns="streaming", max_retries=2, _generator_backpressure_num_objects=3)
    def count(n: int) -> Any:
        for i in range(n):
            yield i, os.getpid()

    seen = []
    for ref in count.remote(12):
        number, pid = raygo.get(ref, timeout=30)
        seen.append(number)
        if number == 7 and seen.count(7) == 1:
            os.kill(pid, signal.SIGKILL)
    assert seen == list(range(12))


def test_references_inside_values_and_functions() -> None:
    box = raygo.put({"deep": [raygo.put("leaf")]})
    assert raygo.get(raygo.get(box)["deep"][0]) == "leaf"
    held = raygo.put("held by a closure")

    @raygo.remote
    def read() -> Any:
        return raygo.get(held)

    assert raygo.get(read.remote()) == "held by a closure"
    assert raygo.get(add.remote(raygo.put(1), y=raygo.put(2))) == 3
