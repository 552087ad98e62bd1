"""Actors: state, names, ends, restarts."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import pytest

import raygo
from raygo.exceptions import ActorDiedError, PendingCallsLimitExceeded, RayActorError, RayTaskError, TaskCancelledError

pytestmark = pytest.mark.usefixtures("session")


@raygo.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.n = start

    def add(self, k: int = 1) -> int:
        self.n += k
        return self.n

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("no")

    def die(self) -> None:
        os._exit(7)

    def context(self) -> Any:
        c = raygo.get_runtime_context()
        return c.get_actor_id(), c.get_actor_name(), c.get_task_name(), c.current_actor

    def __call__(self, x: int) -> int:
        return x

    def __repr__(self) -> str:
        return f"Counter at {self.n}"


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().split()[2] == "Z"
    except OSError:
        return True


def test_state_order_and_errors() -> None:
    a, b = Counter.remote(), Counter.remote(100)
    assert raygo.get([a.add.remote() for _ in range(50)]) == list(range(1, 51))
    assert raygo.get(b.add.remote(k=5)) == 105
    with pytest.raises(ValueError, match="no") as info:
        raygo.get(a.fail.remote())
    assert isinstance(info.value, RayTaskError) and "Counter.fail" in str(info.value)
    assert raygo.get(a.__call__.remote(4)) == 4 and raygo.get(a.__ray_ready__.remote()) is True
    assert raygo.get(a.__ray_call__.remote(lambda self, x: self.n + x, 1)) == 51


def test_wrong_uses() -> None:
    a = Counter.remote()
    with pytest.raises(TypeError, match=r"object\.add\.remote"):
        a.add()
    with pytest.raises(AttributeError, match="absent"):
        _ = a.absent
    with pytest.raises(TypeError, match=r"Counter\(\): "):
        Counter.remote(1, 2)
    with pytest.raises(TypeError, match=r"add\(\): "):
        a.add.remote(1, 2)
    with pytest.raises(ValueError, match="ray.cancel"):
        raygo.kill(raygo.put(1))  # type: ignore[arg-type]
    assert repr(a).startswith("Actor(Counter, ")
    assert all(kind[int] for kind in (raygo.ObjectRef, raygo.ObjectRefGenerator, raygo.actor.ActorHandle, raygo.actor.ActorClass))  # in annotations


def test_dropping_the_handle_ends_the_actor_without_collection(eventually: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        a = Counter.remote()
        pid = raygo.get(a.pid.remote())
        raygo.get([a.add.remote(), a.add.options(num_returns=1).remote()])
        del a
        eventually(lambda: gone(pid))
    finally:
        gc.enable()
    assert raygo.get(Counter.remote(5).add.remote()) == 6  # the handle goes before the call has run


def test_handles_travel() -> None:
    a = Counter.remote()

    @raygo.remote
    def bump(c: Any, n: int) -> int:
        assert c == c and hash(c)
        return [raygo.get(c.add.remote()) for _ in range(n)][-1]

    @raygo.remote
    def method(m: Any) -> int:
        return int(raygo.get(m.remote(10)))

    raygo.get([bump.remote(a, 5) for _ in range(2)])
    assert raygo.get(method.remote(a.add)) == 20
    assert raygo.get(raygo.put(a)) == a


def test_constructor_errors() -> None:
    @raygo.remote
    class Bad:
        def __init__(self) -> None:
            raise RuntimeError("cannot start up")

        def hi(self) -> None: ...

    with pytest.raises(ActorDiedError, match="cannot start up") as info:
        raygo.get(Bad.remote().hi.remote(), timeout=20)
    assert info.value.actor_init_failed


def test_names() -> None:
    a = Counter.options(name="till").remote(7)
    assert raygo.get(raygo.get_actor("till").add.remote()) == 8
    assert raygo.get_actor("till") == a and "till" in raygo.util.list_named_actors()
    with pytest.raises(ValueError, match="already taken"):
        Counter.options(name="till").remote()
    assert raygo.get(Counter.options(name="till", get_if_exists=True).remote().add.remote()) == 9
    with pytest.raises(ValueError, match="Failed to look up actor"):
        raygo.get_actor("till", namespace="elsewhere")
    with pytest.raises(ValueError, match="non-empty"):
        raygo.get_actor("")
    actor_id, name, task, me = raygo.get(a.context.remote())
    assert actor_id == a._actor_id.hex() and name == "till" and task == "Counter.context" and me == a
    raygo.kill(a)
    again = None
    for _ in range(100):  # free as soon as it is dead
        try:
            again = Counter.options(name="till").remote(1)
            break
        except ValueError:
            pass
    assert again is not None and raygo.get(again.add.remote(), timeout=10) == 2
    with pytest.raises(TypeError):
        Counter.options(name="free-again").remote(threading.Lock())
    assert raygo.get(Counter.options(name="free-again").remote(1).add.remote(), timeout=10) == 2


def test_ends() -> None:
    a = Counter.remote()
    raygo.get(a.pid.remote())
    raygo.kill(a)
    with pytest.raises(ActorDiedError):
        raygo.get(a.add.remote(), timeout=10)

    @raygo.remote
    class Leaves:
        def go(self) -> None:
            try:
                raygo.actor.exit_actor()
            except Exception:
                raise AssertionError("no except Exception of the user's stops it") from None

        def hi(self) -> int:
            return 1

    x = Leaves.remote()
    assert raygo.get(x.hi.remote()) == 1
    for call in (x.go, x.hi):
        with pytest.raises(RayActorError):
            raygo.get(call.remote(), timeout=10)
    with pytest.raises(TypeError, match="non-actor"):
        raygo.actor.exit_actor()


@pytest.mark.parametrize("threads", [1, 2])
def test_cancelled_calls_are_not_interrupted(threads: int, tmp_path: Any, eventually: Any) -> None:
    @raygo.remote(max_concurrency=threads)
    class Careful:
        left = "nothing"

        def work(self, asks: bool) -> str:
            self.left = "half"
            (tmp_path / f"asks {asks}").touch()
            end = time.monotonic() + (20 if asks else 0.3)
            while time.monotonic() < end and not (asks and raygo.get_runtime_context().is_canceled()):
                time.sleep(0.01)
            self.left = "whole"
            return "a value that nobody gets"

        @raygo.method(_generator_backpressure_num_objects=1)
        def items(self) -> Any:
            yield from range(1000)

        def look(self) -> str:
            return self.left

    a = Careful.remote()
    for asks in (True, False):
        ref = a.work.remote(asks)
        eventually((tmp_path / f"asks {asks}").exists)
        raygo.cancel(ref)
        with pytest.raises(TaskCancelledError):
            raygo.get(ref, timeout=10)
        assert raygo.get(a.look.remote()) == "whole"
    items = a.items.remote()
    next(items)
    raygo.cancel(items)
    with pytest.raises(TaskCancelledError):
        raygo.get(list(items), timeout=10)
    assert raygo.get(a.look.remote(), timeout=10) == "whole"
    with pytest.raises(RuntimeError, match="driver"):
        raygo.get_runtime_context().is_canceled()


def test_an_actor_that_ends_in_order_cleans_up(tmp_path: Any, eventually: Any) -> None:
    @raygo.remote
    class Tidy:
        def __init__(self, name: str) -> None:
            self.log = tmp_path / name
            __import__("atexit").register(self.note, "exit hook")

        def __getattr__(self, name: str) -> Any:  # answers to every name
            return lambda: "made up"

        def note(self, what: str) -> None:
            with self.log.open("a") as f:
                f.write(what + "\n")

        def __ray_shutdown__(self) -> None:
            raygo.cluster_resources()  # the engine is still there
            self.note(f"shutdown in {raygo.get_runtime_context().get_actor_id()}")
            raise ValueError("it stands in the log")

        def __del__(self) -> None:
            self.note("del")

    for way in ("dropped", "__ray_terminate__", "killed"):
        a = Tidy.remote(way)  # type: ignore[attr-defined]
        who = a._actor_id.hex()
        assert raygo.get(a.__ray_ready__.remote()) is True
        if way == "killed":
            raygo.kill(a)
            with pytest.raises(ActorDiedError):
                raygo.get(a.__ray_ready__.remote(), timeout=10)
            assert not (tmp_path / way).exists()
            continue
        if way == "__ray_terminate__":
            a.__ray_terminate__.remote()
        del a
        done = f"shutdown in {who}\nexit hook\ndel\n"
        eventually(lambda way=way, done=done: (tmp_path / way).exists() and (tmp_path / way).read_text() == done)


def test_an_actor_that_does_not_end_is_ended(driver: Any) -> None:
    driver("""
        import os, time, raygo
        raygo.init(num_cpus=1)

        @raygo.remote(num_cpus=1)
        class Stays:
            def __ray_shutdown__(self):
                time.sleep(600)

        a = Stays.remote()
        raygo.get(a.__ray_ready__.remote())
        del a
        b = Stays.remote()  # needs the first one's CPU
        raygo.get(b.__ray_ready__.remote(), timeout=20)
        """, RAY_actor_graceful_shutdown_timeout_ms="200")


def test_an_actor_dies_with_the_one_that_created_it() -> None:
    @raygo.remote
    class Parent:
        def make(self) -> Any:
            mine, free = Counter.remote(1), Counter.options(name="on its own", lifetime="detached").remote(2)
            return raygo.get([mine.add.remote(), free.add.remote()]), mine, free

    parent = Parent.remote()
    values, mine, free = raygo.get(parent.make.remote())
    assert values == [2, 3]
    raygo.kill(parent)
    with pytest.raises(ActorDiedError, match="its creator is dead, actor Parent"):
        while True:
            raygo.get(mine.add.remote(), timeout=10)
    assert raygo.get(free.add.remote()) == 4
    raygo.kill(free)


def test_restarts() -> None:
    a = Counter.options(max_restarts=1, max_task_retries=0).remote(5)
    first = raygo.get(a.pid.remote())
    with pytest.raises(RayActorError):
        raygo.get(a.die.remote(), timeout=20)
    assert raygo.get(a.pid.options(max_task_retries=-1).remote(), timeout=20) != first
    assert raygo.get(a.add.remote(0)) == 5
    with pytest.raises(RayActorError):
        raygo.get(a.die.remote(), timeout=20)
    with pytest.raises(ActorDiedError, match="7"):
        raygo.get(a.add.remote(), timeout=20)


def test_pending_calls_are_bounded() -> None:
    @raygo.remote(max_pending_calls=2)
    class Slow:
        def nap(self) -> None:
            __import__("time").sleep(0.5)

    a = Slow.remote()
    refs = [a.nap.remote(), a.nap.remote()]
    with pytest.raises(PendingCallsLimitExceeded, match="max_pending_calls"):
        a.nap.remote()
    raygo.get(refs)
    raygo.get(a.nap.remote())


def test_more_actors_than_cpus() -> None:
    crowd = [Counter.remote() for _ in range(8)]
    assert raygo.get([c.add.remote() for c in crowd], timeout=30) == [1] * 8
