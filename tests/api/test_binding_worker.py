"""The worker's side: tasks and actors in a real worker process, against a fake engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import msgpack
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import fake_engine as fe

from raygo import _binding, _serialization

cloudpickle.register_pickle_by_value(sys.modules[__name__])
MAIN = "import os, sys\nfrom raygo import _worker\nos._exit(_worker.main(int(sys.argv[1]), int(sys.argv[2])))"

OK, ERROR, RETRY, CANCELED, EXIT_ACTOR = range(5)


class Worker:
    """A worker process, and what one can ask of it."""

    def __init__(self, engine: fe.FakeEngine, first: Callable[[Worker], Any] = lambda worker: None) -> None:
        self.engine = engine
        self.peer, fd = engine.adopt()
        self.number = 1 << 40
        self.templates = 0
        first(self)
        # A process of its own, not a fork: this one may have had a session, which its forks could not leave.
        self.process = subprocess.Popen([sys.executable, "-c", MAIN, str(fd), str(engine.arena_fd)], pass_fds=(fd, engine.arena_fd), start_new_session=True)
        self.pid = self.process.pid
        os.close(fd)

    def warm(self) -> None:
        """Wait until it runs tasks."""
        assert self.run(lambda: 1) == (OK, 1)

    def template(self, **fields: Any) -> int:
        """Define a template."""
        self.templates += 1
        self.peer.send(fe.TEMPLATE_DEF, self.templates, msgpack.packb(fields))
        return self.templates

    def function(self, function: Callable[..., Any], **fields: Any) -> int:
        """Define one of a function."""
        blob = _serialization.dumps(function)
        return self.template(**{"kind": "function", "name": "f", "codec": "pickle", "blob": blob, **fields})

    def send(self, template: int, *args: Any, **more: Any) -> int:
        """Send a task."""
        self.number += 1
        block = args_block(args, more.pop("kwargs", None))
        self.peer.exec(self.number, template, block, **more)
        return self.number

    def result(self, number: int) -> tuple[int, list[Any]]:
        """The answer: status and values (exceptions for errors)."""
        status, values = self.peer.wait_for(fe.RESULT_, number).result()
        return status, [self.value(self.engine.objects[number, v.index]) for v in values]

    def value(self, v: fe.Value) -> Any:
        """What a value holds."""
        data = v.data if v.kind == fe.INLINE else self.engine.arena[v.offset : v.offset + v.length]
        try:
            return _binding.loads(data)
        except Exception as error:
            if data[:1] != b"\x10":
                raise
            return error

    def run(self, function: Callable[..., Any], *args: Any, fields: dict[str, Any] | None = None, **more: Any) -> tuple[int, Any]:
        """Define, send and wait; a single value by itself."""
        status, values = self.result(self.send(self.function(function, **(fields or {})), *args, **more))
        return status, values[0] if len(values) == 1 else values

    def actor(self, cls: type, *args: Any, **fields: Any) -> None:
        """Make the actor."""
        template = self.template(kind="actor", name=cls.__name__, codec="pickle", blob=_serialization.dumps(cls), **fields)
        status, values = self.result(self.send(template, *args, flags=fe.F_ACTOR_CREATE, nreturns=0))
        assert (status, values) == (OK, []), values

    def method(self, name: str, **fields: Any) -> int:
        """Define a method's template."""
        return self.template(**{"kind": "method", "name": f"A.{name}", "method": name, **fields})

    def call(self, name: str, *args: Any, **fields: Any) -> tuple[int, Any]:
        """Call a method."""
        status, values = self.result(self.send(self.method(name, **fields), *args, flags=fe.F_ACTOR_CALL, actor=1))
        return status, values[0] if len(values) == 1 else values

    def wait(self, timeout: float = 10) -> int:
        """The exit code, once it has ended."""
        return self.process.wait(timeout)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def args_block(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bytes:
    """What args.c makes of these, without references."""
    if not args and not kwargs:
        return b""
    body = _serialization.dumps((args, kwargs) if kwargs else args)
    return bytes([1, 1 if kwargs else 0, 0, 0]) + bytes(4) + len(body).to_bytes(4, "little") + bytes(4) + body


@pytest.fixture
def worker() -> Iterator[Worker]:
    if _binding.connected():
        _binding.shutdown(1)
    engine = fe.FakeEngine()
    worker = Worker(engine)
    yield worker
    worker.close()
    engine.close()


# ---- tasks


def test_plain_functions(worker: Worker) -> None:
    assert worker.run(lambda: 5) == (OK, 5)
    assert worker.run(lambda a, b=2, *c, **d: [a, b, c, d], 1, kwargs={"b": 3, "x": 4}) == (OK, [1, 3, (), {"x": 4}])
    assert worker.run(lambda x: x, b"bytes") == (OK, b"bytes")
    assert worker.run(lambda: "x" * 200_000) == (OK, "x" * 200_000)
    assert worker.run(lambda: None) == (OK, None)


def test_a_burst_keeps_its_order(worker: Worker) -> None:
    f = worker.function(lambda i: i * 2)
    numbers = [worker.send(f, i) for i in range(2000)]
    assert [worker.result(n)[1][0] for n in numbers] == [i * 2 for i in range(2000)]


def test_resolved_arguments(worker: Worker) -> None:
    def inline(value: Any) -> fe.Value:
        return fe.Value(1, fe.INLINE, 0, _binding.dumps(value), [])

    head = bytes([1, 1, 0, 0]) + (2).to_bytes(4, "little")
    import pickle

    body = pickle.dumps(((None, 5), {"k": None}), 5)
    block = head + len(body).to_bytes(4, "little") + bytes(4) + (0).to_bytes(4, "little") + (1 << 31).to_bytes(4, "little") + body
    f = worker.function(lambda a, b, k: (a, b, k))
    worker.peer.exec(7, f, block, top=[((1, 1), inline("first")), ((2, 1), inline([1]))])
    assert worker.result(7) == (OK, [("first", 5, [1])])
    blob = _binding.dumps("z" * 100_000)
    at = worker.engine.top
    worker.engine.top += 1 << 20
    worker.engine.arena[at : at + len(blob)] = blob
    f = worker.function(len)
    worker.peer.exec(
        8,
        f,
        bytes([1, 0, 0, 0]) + (1).to_bytes(4, "little") + (5).to_bytes(4, "little") + bytes(12) + b"\x80\x05N\x85.",
        top=[((3, 1), fe.Value(1, fe.ARENA, 0, b"", [], len(blob), at))],
    )
    assert worker.result(8) == (OK, [100_000])
    worker.peer.wait_for(fe.UNPIN)


def test_a_task_that_comes_with_the_greeting() -> None:
    engine = fe.FakeEngine()
    blob = _binding.dumps("z" * 100_000)
    engine.arena[: len(blob)] = blob
    engine.top = 1 << 20

    def first(worker: Worker) -> None:
        block = bytes([1, 0, 0, 0]) + (1).to_bytes(4, "little") + (5).to_bytes(4, "little") + bytes(12) + b"\x80\x05N\x85."
        worker.peer.exec(8, worker.function(len), block, top=[((3, 1), fe.Value(1, fe.ARENA, 0, b"", [], len(blob), 0))])

    worker = Worker(engine, first)
    assert worker.result(8) == (OK, [100_000])
    worker.close()
    engine.close()


def test_errors(worker: Worker) -> None:
    from raygo.exceptions import RayTaskError

    def fail(x: int) -> None:
        raise KeyError(x)

    status, error = worker.run(fail, 3)
    assert status == ERROR and isinstance(error, KeyError) and isinstance(error, RayTaskError)
    assert "raise KeyError(x)" in str(error) and "_worker_" not in str(error) and "_worker.py" not in str(error).replace("test_binding_worker.py", "")

    class Odd(Exception):
        def __init__(self, *, code: int) -> None:
            super().__init__(f"code {code}")
            self.code = code

    def odd() -> None:
        raise Odd(code=503)

    status, error = worker.run(odd)
    assert error.code == 503 and type(error.cause).__name__ == "Odd"

    class Locked(Exception):
        pass

    def locked() -> None:
        import threading

        error = Locked("with a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    status, error = worker.run(locked)
    assert "with a lock" in str(error)
    status, error = worker.run(lambda: __import__("threading").Lock())
    assert status == ERROR and isinstance(error, TypeError) and "lock" in str(error)
    status, error = worker.run(lambda: __import__("sys").exit(3))
    assert status == ERROR and "exit code is 3" in str(error)
    assert worker.run(lambda: 1) == (OK, 1)


def test_what_cannot_be_loaded(worker: Worker) -> None:
    bad = worker.template(kind="function", name="bad", codec="pickle", blob=b"\x80\x05cno_such_module\nf\n.")
    status, (error,) = worker.result(worker.send(bad))
    assert status == ERROR and isinstance(error, ModuleNotFoundError)
    status, (error,) = worker.result(worker.send(99))
    assert status == ERROR and "never told" in str(error)


def test_retries(worker: Worker) -> None:
    def fail() -> None:
        raise ValueError("again")

    assert worker.run(fail, fields={"retry_exceptions": 1}, retries_left=2)[0] == RETRY
    assert worker.run(fail, fields={"retry_exceptions": 1}, retries_left=0)[0] == ERROR
    for types, expected in (((ValueError,), RETRY), ((KeyError,), ERROR)):
        f = worker.template(kind="function", codec="pickle", retry_exceptions=2, blob=_serialization.dumps((fail, types)))
        assert worker.result(worker.send(f, retries_left=1))[0] == expected


def test_several_values(worker: Worker) -> None:
    def run(function: Any, n: int) -> Any:
        return worker.run(function, fields={"num_returns": n}, nreturns=n)

    assert run(lambda: (1, 2, 3), 3) == (OK, [1, 2, 3])
    assert run(lambda: 5, 0) == (OK, [])

    def generate() -> Iterator[int]:
        yield 1
        yield 2

    assert run(generate, 2) == (OK, [1, 2])
    status, error = run(lambda: (1, 2), 3)
    assert status == ERROR and "returned 2 objects, but num_returns=3" in str(error) and isinstance(error, ValueError)
    assert "taken apart" in str(run(lambda: 5, 2)[1])


def test_coroutines_and_imports(worker: Worker) -> None:
    async def f(x: int) -> int:
        import asyncio

        await asyncio.sleep(0.01)
        return x + 1

    assert worker.run(f, 1) == (OK, 2)
    by_name = worker.template(kind="function", name="sqrt", codec="import", blob=b"math:sqrt")
    worker.peer.exec(5, by_name, msgpack.packb([9.0]))
    (value,) = worker.peer.wait_for(fe.RESULT_, 5).result()[1]
    assert value.data[0] == 3 and msgpack.unpackb(value.data[16:]) == 3.0


# ---- generators


def test_streams(worker: Worker) -> None:
    def count(n: int) -> Iterator[int]:
        yield from range(n)

    async def acount(n: int) -> Any:
        for i in range(n):
            yield i

    for f in (count, acount):
        template = worker.function(f, streaming=True)
        number = worker.send(template, 3, flags=fe.F_STREAMING, nreturns=0)
        items = [fe.Value.parse(worker.peer.wait_for(fe.ITEM, number).payload)[0] for _ in range(3)]
        assert [(v.index, worker.value(v)) for v in items] == [(2, 0), (3, 1), (4, 2)]
        assert worker.result(number) == (OK, [3])


def test_backpressure_and_dropping(worker: Worker) -> None:
    def endless() -> Iterator[int]:
        i = 0
        try:
            while True:
                yield i
                i += 1
        finally:
            print("closed", i)

    template = worker.function(endless, streaming=True, backpressure=4)
    number = worker.send(template, flags=fe.F_STREAMING, nreturns=0)
    for _ in range(4):
        worker.peer.wait_for(fe.ITEM, number)
    time.sleep(0.2)
    assert not [f for f in worker.peer.frames if f.kind == fe.ITEM]
    worker.peer.send(fe.RESUME, number, (2).to_bytes(8, "little"))
    for _ in range(2):
        worker.peer.wait_for(fe.ITEM, number)
    worker.peer.send(fe.RESUME, number, b"\xff" * 8)
    assert worker.result(number) == (OK, [6])


def test_an_error_ends_a_stream(worker: Worker) -> None:
    def f() -> Iterator[int]:
        yield 1
        raise ValueError("in between")

    number = worker.send(worker.function(f, streaming=True), flags=fe.F_STREAMING, nreturns=0)
    worker.peer.wait_for(fe.ITEM, number)
    status, (error,) = worker.result(number)
    assert status == ERROR and isinstance(error, ValueError)


# ---- cancelling


def spin() -> None:
    while True:
        pass


def test_cancel_running(worker: Worker) -> None:
    worker.warm()
    for f in (lambda: __import__("time").sleep(60), spin):
        number = worker.send(worker.function(f))
        time.sleep(0.2)
        worker.peer.send(fe.CANCEL_EXEC, number)
        assert worker.result(number) == (CANCELED, [])
        assert worker.run(lambda: 1) == (OK, 1)


def test_cancel_queued_and_late(worker: Worker) -> None:
    worker.warm()
    f = worker.function(lambda t: __import__("time").sleep(t))
    first, second, third = worker.send(f, 0.3), worker.send(f, 0), worker.send(f, 0)
    worker.peer.send(fe.CANCEL_EXEC, second)
    worker.peer.send(fe.CANCEL_EXEC, 1)  # long gone
    assert worker.result(second)[0] == CANCELED
    assert worker.result(first)[0] == OK and worker.result(third)[0] == OK


def test_cancels_hit_only_their_task(worker: Worker) -> None:
    f = worker.function(lambda: sum(range(2000)))
    for _ in range(300):
        number = worker.send(f)
        worker.peer.send(fe.CANCEL_EXEC, number)
        after = worker.send(f)
        assert worker.result(number)[0] in (OK, CANCELED)
        assert worker.result(after)[0] == OK


def test_sigint_from_elsewhere_is_ignored(worker: Worker) -> None:
    worker.warm()
    number = worker.send(worker.function(lambda: __import__("time").sleep(0.5)))
    time.sleep(0.1)
    os.kill(worker.pid, signal.SIGINT)
    assert worker.result(number) == (OK, [None])


def test_cancel_a_task_that_waits(worker: Worker) -> None:
    def f() -> None:
        _binding.get_one(_binding.ref_from(12345, 1), None)

    number = worker.send(worker.function(f))
    worker.peer.wait_for(fe.BLOCKED, number)
    worker.peer.send(fe.CANCEL_EXEC, number)
    assert worker.result(number)[0] == CANCELED


# ---- the client inside a worker


def test_tasks_use_the_client(worker: Worker) -> None:
    def f(x: Any) -> Any:
        ref = _binding.put(x)
        big = _binding.put(b"x" * 100_000)
        return _binding.get_one(ref, 5), len(_binding.get_one(big, 5)), _binding.current_task(), ref

    number = worker.send(worker.function(f), [1])
    result = worker.peer.wait_for(fe.RESULT_, number)
    status, (value,) = result.result()
    assert status == OK and len(value.refs) == 1
    assert worker.engine.objects[value.refs[0]]


def test_blocked_tasks_say_so(worker: Worker) -> None:
    def f() -> Any:
        return _binding.get_one(_binding.ref_from(777, 1), None)

    number = worker.send(worker.function(f))
    assert worker.peer.wait_for(fe.BLOCKED, number).oids() == [(777, 1)]
    worker.engine.store((777, 1), fe.Value(1, fe.INLINE, 0, _binding.dumps("there"), []))
    assert worker.result(number) == (OK, ["there"])
    worker.peer.wait_for(fe.UNBLOCKED, number)


def test_forks_of_a_worker(worker: Worker) -> None:
    def f() -> Any:
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2])

    assert worker.run(f) == (OK, [1, 2])


# ---- context


def test_context(worker: Worker) -> None:
    def f() -> Any:
        from raygo import runtime_context

        info = runtime_context.task_info()
        return info, os.environ.get("CUDA_VISIBLE_DEVICES")

    context = {"gpus": ["3", "5"], "resources": {"GPU": 2.0}, "name": "other"}
    status, (info, visible) = worker.run(f, context=context, fields={"resources": {"CPU": 10000}})
    assert info["gpus"] == ["3", "5"] and info["resources"] == {"GPU": 2.0} and visible == "3,5" and info["name"] == "f"
    status, (info, visible) = worker.run(f, fields={"resources": {"CPU": 5000}}, attempt=2)
    assert info["resources"] == {"CPU": 0.5} and visible != "3,5" and info["attempt"] == 2


# ---- actors


class Counter:
    """A plain actor."""

    def __init__(self, start: int = 0) -> None:
        self.n = start

    def add(self, k: int = 1) -> int:
        self.n += k
        return self.n

    def fail(self) -> None:
        raise ValueError("no")

    def leave(self) -> None:
        from raygo.exceptions import ActorExit

        raise ActorExit

    def pair(self) -> tuple[int, int]:
        return 1, 2

    def die(self, code: int = 0) -> None:
        sys.exit(code)


def test_actors(worker: Worker) -> None:
    worker.actor(Counter, 5)
    assert [worker.call("add")[1] for _ in range(3)] == [6, 7, 8]
    status, error = worker.call("fail")
    assert status == ERROR and isinstance(error, ValueError)
    status, error = worker.call("missing")
    assert status == ERROR and isinstance(error, AttributeError)
    assert worker.call("__ray_ready__") == (OK, True)
    assert worker.call("__ray_call__", lambda self, k: self.n + k, 10) == (OK, 18)
    status, values = worker.result(worker.send(worker.method("pair", num_returns=2), flags=fe.F_ACTOR_CALL, actor=1, nreturns=2))
    assert values == [1, 2]


@pytest.mark.parametrize("method", ["leave", "__ray_terminate__", "die"])
def test_actors_end_themselves(worker: Worker, method: str) -> None:
    worker.actor(Counter)
    assert worker.call(method) == (EXIT_ACTOR, [])
    assert worker.wait() == 0
    worker.peer.wait_for(fe.GOODBYE)


def test_an_exit_code_is_the_process_s(worker: Worker) -> None:
    worker.actor(Counter)
    worker.send(worker.method("die"), 3, flags=fe.F_ACTOR_CALL, actor=1)
    assert worker.wait() == 3


def test_a_failing_constructor(worker: Worker) -> None:
    class Bad:
        def __init__(self) -> None:
            raise ValueError("not today")

    template = worker.template(kind="actor", name="Bad", codec="pickle", blob=_serialization.dumps(Bad))
    status, (error,) = worker.result(worker.send(template, flags=fe.F_ACTOR_CREATE, nreturns=0))
    assert status == ERROR and isinstance(error, ValueError) and "Bad.__init__" in str(error)


class Async:
    """An async actor."""

    def __init__(self) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self.order: list[int] = []

    async def wait(self) -> str:
        await self.event.wait()
        return "woken"

    async def set(self) -> None:
        self.event.set()

    async def note(self, i: int) -> list[int]:
        self.order.append(i)
        return self.order

    def sync(self, x: int) -> int:
        return x + 1

    def sleep(self) -> None:
        time.sleep(0.4)

    async def fail(self) -> None:
        raise KeyError("async")

    async def number(self) -> int:
        import asyncio

        await asyncio.sleep(0)
        return _binding.current_task()

    async def items(self, n: int) -> Any:
        for i in range(n):
            yield i

    async def leave(self) -> None:
        from raygo.exceptions import ActorExit

        raise ActorExit

    async def info(self) -> Any:
        from raygo import runtime_context

        return {k: v for k, v in runtime_context.task_info().items() if k in ("name", "actor")}


def test_async_actors(worker: Worker) -> None:
    worker.actor(Async, is_async=True)
    m = worker.method("wait")
    waiting = [worker.send(m, flags=fe.F_ACTOR_CALL, actor=1) for _ in range(300)]
    assert worker.call("sync", 1) == (OK, 2)
    assert worker.call("set") == (OK, None)
    assert all(worker.result(n) == (OK, ["woken"]) for n in waiting)
    note = worker.method("note")
    numbers = [worker.send(note, i, flags=fe.F_ACTOR_CALL, actor=1) for i in range(500)]
    assert worker.result(numbers[-1])[1][0] == list(range(500))
    status, error = worker.call("fail")
    assert status == ERROR and isinstance(error, KeyError)
    assert worker.call("number")[1] == worker.number
    info = worker.call("info")[1]
    assert info["name"] == "A.info"
    number = worker.send(worker.method("items", streaming=True, backpressure=2), 5, flags=fe.F_STREAMING | fe.F_ACTOR_CALL, actor=1, nreturns=0)
    for i in range(5):
        worker.peer.wait_for(fe.ITEM, number)
        worker.peer.send(fe.RESUME, number, (i + 1).to_bytes(8, "little"))
    assert worker.result(number) == (OK, [5])


def test_async_limits_and_cancel(worker: Worker) -> None:
    worker.actor(Async, is_async=True, max_concurrency=2, groups={"io": 1})
    m, io = worker.method("wait"), worker.method("sync", group="io")
    running = [worker.send(m, flags=fe.F_ACTOR_CALL, actor=1) for _ in range(2)]
    queued = worker.send(worker.method("sync"), 1, flags=fe.F_ACTOR_CALL, actor=1)
    assert worker.result(worker.send(io, 5, flags=fe.F_ACTOR_CALL, actor=1)) == (OK, [6])
    assert not [f for f in worker.peer.frames if f.id == queued]
    worker.peer.send(fe.CANCEL_EXEC, running[0])
    assert worker.result(running[0]) == (CANCELED, [])
    assert worker.result(queued) == (OK, [2])
    sleeping = worker.send(worker.method("sleep", group="io"), flags=fe.F_ACTOR_CALL, actor=1)
    time.sleep(0.2)
    worker.peer.send(fe.CANCEL_EXEC, sleeping)
    assert worker.result(sleeping) == (CANCELED, [])  # at its end


def test_async_actor_leaves(worker: Worker) -> None:
    worker.actor(Async, is_async=True)
    assert worker.call("leave") == (EXIT_ACTOR, [])
    assert worker.wait() == 0


def test_async_actor_is_told_to_end(worker: Worker) -> None:
    worker.actor(Async, is_async=True)
    assert worker.call("sync", 1) == (OK, 2)
    worker.peer.send(fe.EXIT)
    assert worker.wait() == 0


class Threaded:
    """A threaded actor."""

    def __init__(self) -> None:
        import threading

        self.barrier = threading.Barrier(4)

    def meet(self) -> int:
        return self.barrier.wait(10)

    def quick(self, x: int) -> int:
        return x

    def where(self) -> int:
        import threading

        return threading.get_ident()

    def spin(self) -> None:
        while not _binding.is_canceled():
            time.sleep(0.01)


def test_threaded_actors(worker: Worker) -> None:
    worker.actor(Threaded, max_concurrency=4)
    meet = worker.method("meet")
    for _ in range(3):
        numbers = [worker.send(meet, flags=fe.F_ACTOR_CALL, actor=1) for _ in range(4)]
        assert sorted(worker.result(n)[1][0] for n in numbers) == [0, 1, 2, 3]
    # One after the other, each only when the ones before are blocked.
    numbers = []
    for _ in range(4):
        numbers.append(worker.send(meet, flags=fe.F_ACTOR_CALL, actor=1))
        time.sleep(0.05)
    assert sorted(worker.result(n)[1][0] for n in numbers) == [0, 1, 2, 3]
    quick = worker.method("quick")
    numbers = [worker.send(quick, i, flags=fe.F_ACTOR_CALL, actor=1) for i in range(2000)]
    assert [worker.result(n)[1][0] for n in numbers] == list(range(2000))
    spinning = [worker.send(worker.method("spin"), flags=fe.F_ACTOR_CALL, actor=1) for _ in range(3)]
    time.sleep(0.2)
    for number in spinning:
        worker.peer.send(fe.CANCEL_EXEC, number)
        assert worker.result(number) == (OK, [None])  # it was not interrupted: the engine drops the value
    worker.peer.send(fe.EXIT)
    assert worker.wait() == 0


def test_groups_have_their_own_threads(worker: Worker) -> None:
    worker.actor(Threaded, groups={"io": 2, "cpu": 1})
    main, io, cpu = (worker.method("where", **({"group": g} if g else {})) for g in ("", "io", "cpu"))
    blocked = worker.send(worker.method("spin"), flags=fe.F_ACTOR_CALL, actor=1)
    time.sleep(0.1)
    idents = {worker.result(worker.send(m, flags=fe.F_ACTOR_CALL, actor=1))[1][0] for m in (io, cpu)}
    assert len(idents) == 2
    stuck = worker.send(main, flags=fe.F_ACTOR_CALL, actor=1)
    time.sleep(0.1)
    assert not [f for f in worker.peer.frames if f.id == stuck and f.kind == fe.RESULT_]
    worker.peer.send(fe.CANCEL_EXEC, blocked)
    assert worker.result(blocked)[0] == OK and worker.result(stuck)[0] == OK
    worker.peer.send(fe.EXIT)
    assert worker.wait() == 0


# ---- the end


def test_exit(worker: Worker) -> None:
    worker.warm()
    number = worker.send(worker.function(lambda: __import__("time").sleep(0.3)))
    time.sleep(0.1)
    worker.peer.send(fe.EXIT)
    assert worker.result(number)[0] == OK
    assert worker.wait() == 0


def test_exit_hooks_run(worker: Worker, tmp_path: Any) -> None:
    path = str(tmp_path / "ended")

    def f(path: str) -> None:
        import atexit

        atexit.register(lambda: open(path, "w").close())

    assert worker.run(f, path)[0] == OK
    worker.peer.send(fe.EXIT)
    assert worker.wait() == 0 and os.path.exists(path)


def test_the_engine_goes(worker: Worker) -> None:
    assert worker.run(lambda: 1) == (OK, 1)
    worker.peer.sock.shutdown(2)
    assert worker.wait() != 0


def test_heavy_modules_are_reported(worker: Worker) -> None:
    reported: list[Any] = []
    worker.engine.calls["modules.report"] = reported.append

    def f() -> None:
        import numpy  # noqa: F401

    worker.run(f)
    worker.run(lambda: 1)
    assert reported and "numpy" in reported[0]["modules"]
