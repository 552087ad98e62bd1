"""Tasks, from the call to the value or the error."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
import threading
import time
import weakref
from typing import Any

import pytest

import raygo
from raygo.exceptions import DeadlockError, GetTimeoutError, RayTaskError, TaskCancelledError, TaskUnschedulableError, WorkerCrashedError
from raygo.util.scheduling_strategies import NodeAffinitySchedulingStrategy

pytestmark = pytest.mark.usefixtures("session")


@raygo.remote
def square(n: int) -> int:
    return n * n


def test_values_and_order() -> None:
    refs = [square.remote(n) for n in range(100)]
    assert raygo.get(refs) == [n * n for n in range(100)]
    assert raygo.get(refs[7]) == 49 and isinstance(refs[0], raygo.ObjectRef)


def test_redefined_helpers_and_globals_take_effect() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "raygo": raygo}
    exec("def helper(): return scale\nscale = 1\n@raygo.remote\ndef f(): return helper()", space)
    assert raygo.get(space["f"].remote()) == 1
    space["scale"] = 2
    assert raygo.get(space["f"].remote()) == 2
    exec("def helper(): return 'new'", space)
    assert raygo.get(space["f"].remote()) == "new"
    exec("@raygo.remote\ndef g(): return later()", space)
    with pytest.raises(NameError):
        raygo.get(space["g"].remote())
    exec("def later(): return 5", space)
    assert raygo.get(space["g"].remote()) == 5


def test_nested_and_recursive() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "raygo": raygo}
    exec("@raygo.remote\ndef depth(n): return 0 if n == 0 else 1 + raygo.get(depth.remote(n - 1))", space)
    assert raygo.get(space["depth"].remote(6), timeout=30) == 6


def test_wrong_calls_fail_at_the_call() -> None:
    for call in (lambda: square.remote(), lambda: square.remote(1, 2), lambda: square.remote(m=1)):
        with pytest.raises(TypeError, match=r"square\(\): "):
            call()


def test_values_by_number() -> None:
    @raygo.remote(num_returns=2)
    def pair() -> tuple[int, int]:
        return 1, 2

    @raygo.remote(num_returns=0)
    def none() -> None: ...

    a, b = pair.remote()
    assert raygo.get([b, a]) == [2, 1]
    assert none.remote() is None
    first, *_ = pair.options(num_returns=3).remote()
    with pytest.raises(ValueError):
        raygo.get(first)


def test_generators_with_a_number_of_values() -> None:
    @raygo.remote
    def numbers(n: int) -> Any:
        yield from range(n)
        raise KeyError("after them")

    for n, made in ((2, 1), (2, 2), (4, 2)):  # more than are wanted are dropped
        values = numbers.options(num_returns=n).remote(made)
        assert raygo.get(values[:made]) == list(range(made))
        for ref in values[made:]:
            with pytest.raises(KeyError, match="after them"):
                raygo.get(ref)
    assert raygo.get(numbers.options(num_returns=1).remote(1)) == 0
    zero, error = raygo.get(numbers.options(num_returns="dynamic").remote(1))
    assert raygo.get(zero) == 0
    with pytest.raises(KeyError, match="after them"):
        raygo.get(error)
    with pytest.raises(KeyError, match="after them"):
        raygo.get(square.remote(error))

    @raygo.remote(num_returns=3)
    def large() -> Any:
        yield 1
        raise KeyError("x" * 1_000_000)

    one, error, other = large.remote()
    assert raygo.get(one) == 1
    with pytest.raises(KeyError, match="xxx"):
        raygo.get(error)
    with pytest.raises(RayTaskError, match="index 1"):
        raygo.get(other)


def test_a_generator_that_raises_holds_nothing() -> None:
    class Keeps:
        def __init__(self) -> None:
            gc.disable()
            self.held: list[Any] = []

        def _numbers(self) -> Any:
            thing = type("Thing", (), {})()
            self.held.append(weakref.ref(thing))
            yield 1
            raise KeyError(str(thing))

        def left(self) -> list[bool]:
            return [ref() is not None for ref in self.held]

    class Plain(Keeps):
        def numbers(self) -> Any:
            yield from self._numbers()

    class Asynchronous(Keeps):
        async def numbers(self) -> Any:
            for n in self._numbers():
                yield n

    for cls in (Plain, Asynchronous):
        a = raygo.remote(cls).remote()
        one, error = a.numbers.options(num_returns=2).remote()
        assert raygo.get(one) == 1
        with pytest.raises(KeyError):
            raygo.get(error)
        raygo.get(a.numbers.options(num_returns="dynamic").remote())
        assert raygo.get(a.left.remote()) == [False, False]


def test_generators_of_asynchronous_actors_with_a_number_of_values() -> None:
    @raygo.remote
    class Numbers:
        async def upto(self, n: int) -> Any:
            for i in range(n):
                yield i
            raise KeyError("after them")

    a = Numbers.remote()
    one, rest = a.upto.options(num_returns=2).remote(1)
    assert raygo.get(one) == 0 and raygo.get(a.upto.options(num_returns=2).remote(5)) == [0, 1]
    zero, error = raygo.get(a.upto.options(num_returns="dynamic").remote(1))
    assert raygo.get(zero) == 0
    for ref in (rest, error):
        with pytest.raises(KeyError, match="after them"):
            raygo.get(ref)


def test_errors_keep_type_text_and_cause() -> None:
    class Http(Exception):
        def __init__(self, *, url: str, code: int) -> None:
            super().__init__(f"GET {url} -> {code}")
            self.url, self.code = url, code

    @raygo.remote
    def fetch() -> None:
        raise Http(url="http://x", code=503)

    with pytest.raises(Http) as info:
        raygo.get(fetch.remote())
    assert isinstance(info.value, RayTaskError) and info.value.code == 503
    assert "fetch" in str(info.value) and "GET http://x -> 503" in str(info.value)
    assert square.remote(fetch.remote()) is not None


def test_sys_exit_is_one_error(tmp_path: Any) -> None:
    log = tmp_path / "log"

    @raygo.remote
    def leaves() -> None:
        with open(log, "a") as f:
            f.write("x")
        sys.exit(3)

    with pytest.raises(RayTaskError, match=r"exit.*3"):
        raygo.get(leaves.remote(), timeout=20)
    assert log.read_text() == "x"


def test_dead_workers_are_named_and_retried(tmp_path: Any) -> None:
    log = tmp_path / "log"

    @raygo.remote(max_retries=0)
    def crash() -> None:
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 11)

    with pytest.raises(WorkerCrashedError, match=r"SIGSEGV"):
        raygo.get(crash.remote(), timeout=20)

    @raygo.remote(max_retries=2)
    def third_time() -> int:
        with open(log, "a") as f:
            f.write("x")
        if log.stat().st_size < 3:
            os._exit(1)
        return 3

    assert raygo.get(third_time.remote(), timeout=30) == 3


def test_timeouts_say_what_for() -> None:
    @raygo.remote
    def nap() -> int:
        time.sleep(1)
        return 1

    ref = nap.remote()
    with pytest.raises(GetTimeoutError, match="nap"):
        raygo.get(ref, timeout=0.3)
    with pytest.raises(GetTimeoutError):
        raygo.get([ref], timeout=0)
    assert raygo.get(ref) == 1

    @raygo.remote
    def raises() -> None:
        raise TimeoutError("the task's own")

    with pytest.raises(TimeoutError, match="the task's own") as info:
        raygo.get(raises.remote(), timeout=10)
    assert isinstance(info.value, RayTaskError)


class Deep:
    def __float__(self) -> float:
        raise RecursionError("too deep")


def test_odd_timeouts_and_numbers() -> None:
    ref = raygo.put(1)
    for wait in (lambda t: raygo.get(ref, timeout=t), lambda t: raygo.wait([ref], timeout=t)):
        with pytest.raises(ValueError, match="nonnegative|from 0 on"):
            wait(-2)
        with pytest.raises(TypeError, match="number of seconds"):
            wait("1")
        for long in (float("inf"), 1e20, 10**30, 10**400):
            wait(long)
        with pytest.raises(ValueError, match="nonnegative|from 0 on"):
            wait(-(10**400))
    with pytest.raises(RecursionError):
        raygo.get(ref, timeout=Deep())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="num_returns of wait"):
        raygo.wait([ref], num_returns=1.0)  # type: ignore[arg-type]
    numpy = pytest.importorskip("numpy")
    assert raygo.wait([ref], num_returns=numpy.int64(1)) == ([ref], [])


def test_cancel() -> None:
    @raygo.remote
    def spin() -> None:
        while True:
            time.sleep(0.01)

    @raygo.remote(num_cpus=4)
    def big() -> int:
        return 1

    running, queued = spin.remote(), big.remote()
    time.sleep(0.5)
    raygo.cancel(queued)
    raygo.cancel(running)
    for ref in (queued, running):
        with pytest.raises(TaskCancelledError):
            raygo.get(ref, timeout=10)
    with pytest.raises(TypeError, match="ray.kill"):
        raygo.cancel(5)  # type: ignore[arg-type]


def test_streams() -> None:
    @raygo.remote
    def count(n: int) -> Any:
        for i in range(n):
            yield i * 10
        if n == 2:
            raise RuntimeError("half way")

    gen = count.remote(3)
    assert isinstance(gen, raygo.ObjectRefGenerator)
    assert [raygo.get(ref) for ref in gen] == [0, 10, 20]
    with pytest.raises(StopIteration):
        next(gen)
    assert gen.is_finished()
    it = count.remote(2)
    assert [raygo.get(next(it)), raygo.get(next(it))] == [0, 10]
    with pytest.raises(RuntimeError, match="half way"):
        raygo.get(next(it))
    with pytest.raises(StopIteration):
        next(it)
    assert [raygo.get(r) for r in raygo.get(count.options(num_returns="dynamic").remote(3))] == [0, 10, 20]
    @raygo.remote(max_retries=0)
    def dies() -> Any:
        yield 1
        os._exit(1)

    it = dies.remote()
    assert raygo.get(next(it)) == 1  # it was on its way
    with pytest.raises(WorkerCrashedError):
        raygo.get(next(it))
    gen = count.remote(1)
    ready, rest = raygo.wait([gen, square.remote(2)], num_returns=2, timeout=10)
    assert len(ready) == 2 and rest == []


def test_a_stream_may_be_asked_for_a_time() -> None:
    @raygo.remote
    def waits(path: str) -> Any:
        while not os.path.exists(path):
            time.sleep(0.01)
        yield 1

    with tempfile.TemporaryDirectory() as folder:
        gen = waits.remote(f"{folder}/go")
        nothing = gen._next_sync(0.05)
        assert nothing.is_nil() and nothing == raygo.ObjectRef.nil() != raygo.put(1)
        with pytest.raises((ValueError, ReferenceError)):
            raygo.get(nothing)
        open(f"{folder}/go", "w").close()
        assert raygo.get(gen._next_sync()) == 1
    refs = [raygo.put(i) for i in range(3)]
    assert sorted(refs) == sorted(refs, key=raygo.ObjectRef.binary)


def test_dropping_a_stream_stops_its_task(tmp_path: Any, eventually: Any) -> None:
    log = tmp_path / "log"

    @raygo.remote
    def endless() -> Any:
        while True:
            with open(log, "a") as f:
                f.write("x")
            time.sleep(0.01)
            yield 1

    gen = endless.remote()
    assert raygo.get(next(gen)) == 1
    del gen
    gc.collect()

    def still() -> bool:
        before = log.stat().st_size
        time.sleep(0.2)
        return log.stat().st_size == before

    eventually(still)


def test_what_cannot_run_says_why() -> None:
    @raygo.remote(resources={"unobtainium": 1})
    def never() -> None: ...

    ref = never.remote()
    with pytest.raises(GetTimeoutError, match="unobtainium"):
        raygo.get(ref, timeout=0.5)
    raygo.cancel(ref)


def test_a_node_that_is_not_there_is_not_waited_for() -> None:
    """Resources may come with an autoscaler; a node of that name will not."""
    nowhere = NodeAffinitySchedulingStrategy("0" * 56, soft=False)
    with pytest.raises(TaskUnschedulableError, match="cannot run: it must run on node 0000"):
        raygo.get(square.options(scheduling_strategy=nowhere).remote(1), timeout=5)  # half of what infeasible demands are given


def test_context_of_a_task() -> None:
    @raygo.remote(num_cpus=2, name="named")
    def look() -> Any:
        c = raygo.get_runtime_context()
        return c.get_job_id(), c.get_node_id(), c.get_worker_id(), c.get_task_id(), c.get_task_name(), c.get_assigned_resources(), c.get_actor_id()

    here = raygo.get_runtime_context()
    job, node, worker, task, name, resources, actor = raygo.get(look.remote())
    assert job == here.get_job_id() and node == here.get_node_id() and worker != here.get_worker_id()
    assert re.fullmatch("[0-9a-f]{48}", task) and name == "named" and resources["CPU"] == 2 and actor is None
    assert here.get_task_id() is None and here.get_actor_id() is None


def test_a_thread_beside_a_call_is_part_of_no_cycle() -> None:
    @raygo.remote
    class Busy:
        def work(self, me: list[Any]) -> None:
            self.got: list[Any] = []
            self.thread = threading.Thread(target=lambda: self.got.append(raygo.get(me[0].word.remote())))
            self.thread.start()
            self.thread.join(0.2)

        def word(self) -> str:
            return "a word"

        def result(self) -> list[Any]:
            self.thread.join(10)
            return self.got

    a = Busy.remote()
    raygo.get(a.work.remote([a]))
    assert raygo.get(a.result.remote()) == ["a word"]


def test_a_cycle_is_reported() -> None:
    @raygo.remote
    class Self:
        def keep(self, me: Any) -> None:
            self.me = me

        def inner(self) -> int:
            return 1

        def outer(self) -> int:
            return int(raygo.get(self.me.inner.remote()))

    a = Self.remote()
    raygo.get(a.keep.remote(a))
    with pytest.raises(RayTaskError, match="never end.*inner") as info:
        raygo.get(a.outer.remote(), timeout=15)
    assert isinstance(info.value.cause, DeadlockError)
    raygo.kill(a)


def test_a_cycle_is_reported_beside_waiting_threads() -> None:
    @raygo.remote(num_cpus=0)
    class Waits:
        def outer(self, other: Any, me: Any, refs: list[Any]) -> Any:
            threading.Thread(target=lambda: [raygo.get(ref) for ref in refs], daemon=True).start()
            return raygo.get(other.inner.remote(me, refs))

        def inner(self, other: Any, refs: list[Any]) -> Any:
            raygo.get(refs[1])  # the thread's first wait has ended by now, and the next has begun
            return raygo.get(other.word.remote())

        def word(self) -> str:
            return "a word"

    @raygo.remote(num_cpus=0)
    def after(seconds: float, _: Any = None) -> None:
        time.sleep(seconds)

    a, b = Waits.remote(), Waits.remote()
    first = after.remote(0.1)
    never = after.remote(1000)
    with pytest.raises(RayTaskError, match="part of a cycle"):
        raygo.get(a.outer.remote(b, a, [first, after.remote(0.2, first), never]), timeout=15)
    raygo.cancel(never)
    for actor in (a, b):
        raygo.kill(actor)


def test_big_closures_run() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "raygo": raygo, "table": bytearray(1 << 20)}
    exec("@raygo.remote\ndef f(): return len(table)", space)
    assert raygo.get(space["f"].remote()) == 1 << 20
