"""What Ray's users rely on in the corners: captured placement groups, limits on pending calls, refusals, names in texts."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import raygo
from raygo import cloudpickle
from raygo.exceptions import ActorDiedError, ActorUnavailableError, DeadlockError, GetTimeoutError, PendingCallsLimitExceeded
from raygo.util.placement_group import placement_group, remove_placement_group
from raygo.util.scheduling_strategies import PlacementGroupSchedulingStrategy

pytestmark = pytest.mark.usefixtures("session")


@raygo.remote
def group() -> str | None:
    return raygo.get_runtime_context().get_placement_group_id()  # type: ignore[no-any-return]


@raygo.remote
def child_group() -> str | None:
    return raygo.get(group.remote(), timeout=20)  # type: ignore[no-any-return]


@raygo.remote(num_cpus=1)
class Asker:
    def child_group(self) -> str | None:
        return raygo.get(group.remote(), timeout=20)  # type: ignore[no-any-return]


class Sleeper:
    def nap(self, seconds: float = 0.05) -> None:
        time.sleep(seconds)

    def one(self) -> int:
        return 1


def test_children_go_to_the_capturing_group() -> None:
    pg = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert pg.wait(20)
    capturing = PlacementGroupSchedulingStrategy(pg, placement_group_capture_child_tasks=True)
    plain = PlacementGroupSchedulingStrategy(pg)
    try:
        assert raygo.get(child_group.options(scheduling_strategy=capturing).remote(), timeout=30) == pg.id.hex()
        assert raygo.get(child_group.options(scheduling_strategy=plain).remote(), timeout=30) is None
        assert raygo.get(child_group.remote(), timeout=30) is None
        actor = Asker.options(scheduling_strategy=capturing).remote()  # type: ignore[attr-defined]
        assert raygo.get(actor.child_group.remote(), timeout=30) == pg.id.hex()
    finally:
        remove_placement_group(pg)


def test_max_pending_calls_counts_all_methods_and_handles() -> None:
    actor = raygo.remote(max_pending_calls=2)(Sleeper).remote()
    other = cloudpickle.loads(cloudpickle.dumps(actor))
    first, second = actor.nap.remote(0.5), other.nap.remote(0)
    for handle in (actor, other):
        with pytest.raises(PendingCallsLimitExceeded, match=r"Sleeper\.one"):
            handle.one.remote()
    raygo.get([first, second])
    assert raygo.get(other.one.remote()) == 1


def test_a_call_whose_reference_is_dropped_counts_until_it_ends(eventually: Any) -> None:
    actor = raygo.remote(max_pending_calls=2)(Sleeper).remote()
    raygo.get(actor.one.remote())
    for _ in range(2):
        actor.nap.remote(0.3)
    with pytest.raises(PendingCallsLimitExceeded):
        actor.one.remote()

    def accepted() -> bool:
        try:
            return raygo.get(actor.one.remote()) == 1
        except PendingCallsLimitExceeded:
            return False

    eventually(accepted)


def test_calls_of_actors_cannot_be_cancelled_by_force() -> None:
    actor = raygo.remote(Sleeper).remote()
    ref = actor.nap.remote(0.5)
    with pytest.raises(ValueError, match="force=True is not supported for actor tasks"):
        raygo.cancel(ref, force=True)
    raygo.get(ref)
    assert raygo.get(actor.one.remote()) == 1


def test_a_name_is_free_again_when_its_actor_could_not_be_submitted() -> None:
    with pytest.raises(TypeError):
        raygo.remote(Taker).options(name="reused").remote(threading.Lock())
    actor = raygo.remote(Taker).options(name="reused").remote(1)
    assert raygo.get(actor.it.remote()) == 1


class Taker:
    def __init__(self, it: Any) -> None:
        self.value = it

    def it(self) -> Any:
        return self.value

    def itself(self, handle: Any) -> Any:
        return raygo.get(handle.it.remote())


def test_texts_name_methods_as_ray_does() -> None:
    actor = raygo.remote(Taker).remote(1)
    with pytest.raises(DeadlockError) as deadlock:
        raygo.get(actor.itself.remote(actor), timeout=20)
    assert "Taker.itself waits for Taker.it;" in str(deadlock.value) and "Taker.Taker" not in str(deadlock.value)
    sleeper = raygo.remote(Sleeper).remote()
    with pytest.raises(GetTimeoutError, match=r"call Sleeper\.nap "):
        raygo.get(sleeper.nap.remote(1), timeout=0.3)


@raygo.remote
class Leaver:
    def leave(self, code: int) -> None:
        raise SystemExit(code)

    async def later(self) -> int:
        return 1

    def one(self) -> int:
        return 1


@raygo.remote
class PlainLeaver:
    def leave(self, code: int) -> None:
        raise SystemExit(code)

    def one(self) -> int:
        return 1


@pytest.mark.parametrize("cls", [Leaver, PlainLeaver])
def test_sys_exit_in_an_actor_is_told_with_its_code(cls: Any) -> None:
    actor = cls.options(max_restarts=1).remote()
    with pytest.raises(ActorUnavailableError, match="exited with code 3"):
        raygo.get(actor.leave.remote(3), timeout=20)
    assert raygo.get(actor.one.remote(), timeout=20) == 1  # brought back
    with pytest.raises(ActorDiedError, match="exited with code 4(?s:.)*SystemExit: 4"):
        raygo.get(actor.leave.remote(4), timeout=20)
    willing = cls.options(max_restarts=5).remote()
    for method, *args in ((willing.leave, 0), (willing.one,)):
        with pytest.raises(ActorDiedError, match="ended itself"):  # zero: it wanted to
            raygo.get(method.remote(*args), timeout=20)


@raygo.remote
class Waiter:
    def get(self, handle: Any, seconds: float) -> str:
        try:
            return raygo.get(handle.one.remote(), timeout=seconds)  # type: ignore[no-any-return]
        except GetTimeoutError:
            return "timed out"

    def wait(self, handle: Any, seconds: float) -> int:
        return len(raygo.wait([handle.one.remote()], timeout=seconds)[0])

    def both(self, handle: Any, seconds: float) -> str:
        try:
            return raygo.get(handle.back.remote(raygo.get_runtime_context().current_actor), timeout=seconds)  # type: ignore[no-any-return]
        except GetTimeoutError:
            return "timed out"

    def back(self, handle: Any) -> int:
        return raygo.get(handle.one.remote())  # type: ignore[no-any-return]

    def one(self) -> int:
        return 1


def test_a_wait_that_ends_by_itself_is_part_of_no_cycle() -> None:
    a, b = Waiter.remote(), Waiter.remote()
    assert raygo.get(a.get.remote(a, 0.2), timeout=20) == "timed out"
    assert raygo.get(a.wait.remote(a, 0.2), timeout=20) == 0
    assert raygo.get(a.both.remote(b, 0.2), timeout=20) == "timed out"
    assert raygo.get([a.one.remote(), b.one.remote()], timeout=20) == [1, 1]


def test_output_is_marked_with_the_class_or_description_of_its_actor(driver: Any) -> None:
    done = driver(
        """
        import raygo

        @raygo.remote
        class Plain:
            def speak(self):
                print("from plain")

        @raygo.remote
        class Described:
            def __init__(self, n):
                self.n = n

            def speak(self):
                print("from described")

            def __repr__(self):
                return f"Described(n={self.n})"

        @raygo.remote
        def task():
            print("from task")

        raygo.init(num_cpus=2)
        raygo.get([Plain.remote().speak.remote(), Described.remote(3).speak.remote(), task.remote()])
        raygo.shutdown()
        """
    )
    lines = done.stdout.splitlines()
    for start, text in (("(Plain pid=", "from plain"), ("(Described(n=3) pid=", "from described"), ("(task pid=", "from task")):
        assert any(line.startswith(start) and line.endswith(text) for line in lines), done.stdout


@raygo.remote
def leaf(i: int) -> int:
    return i


@raygo.remote
def ask_leaf(i: int) -> int:
    return raygo.get(leaf.remote(i))  # type: ignore[no-any-return]


@raygo.remote
def ask_through_argument(i: int) -> int:
    return raygo.get(leaf.remote(leaf.remote(i)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("ask", [ask_leaf, ask_through_argument])
def test_nested_tasks_go_before_those_that_nobody_waits_for_in_a_process(ask: Any) -> None:
    from raygo.util.state import list_workers

    assert sum(raygo.get([ask.remote(i) for i in range(300)], timeout=50)) == sum(range(300))
    assert len(list_workers(limit=1000)) < 60  # one process for each that waits would be 300


def test_an_actor_whose_argument_failed_tells_that_error() -> None:
    @raygo.remote
    def bad() -> None:
        raise KeyError("the argument's error")

    actor = raygo.remote(Taker).remote(bad.remote())
    with pytest.raises(ActorDiedError, match="the argument's error"):
        raygo.get(actor.it.remote(), timeout=20)


def test_more_memory_than_can_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="memory"):
        leaf.options(memory=1 << 60)


@raygo.remote
class Builder:
    """Its constructor waits for an actor that waits for it."""

    def __init__(self, other: Any) -> None:
        self.value = raygo.get(other.one.remote())

    def one(self) -> int:
        return self.value  # type: ignore[no-any-return]


@raygo.remote
class Maker:
    def make(self, me: Any) -> int:
        return raygo.get(Builder.remote(me).one.remote())  # type: ignore[no-any-return]

    def one(self) -> int:
        return 1


def test_a_constructor_in_a_cycle_is_reported() -> None:
    maker = Maker.remote()
    with pytest.raises((DeadlockError, ActorDiedError), match="part of a cycle"):
        raygo.get(maker.make.remote(maker), timeout=20)


def test_what_was_done_before_a_crash_is_not_lost() -> None:
    @raygo.remote
    class Worker:
        def work(self) -> int:
            time.sleep(0.002)
            return 1

        def crash(self) -> None:
            import os

            os._exit(1)

    for _ in range(5):
        actor = Worker.remote()
        done = [actor.work.remote() for _ in range(5)]
        actor.crash.remote()
        assert raygo.get(done, timeout=20) == [1] * 5
