"""The binding as a client: references, values, submitting and waiting, against a fake engine."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

sys.path.insert(0, os.path.dirname(__file__))
import fake_engine as fe

from raygo import _binding


@pytest.fixture
def engine() -> Iterator[fe.FakeEngine]:
    from raygo import _init

    engine = fe.FakeEngine()
    _binding.set_types(auto_init=None)
    if _binding.connected():
        _binding.shutdown(1)
    _binding.connect(engine.path, msgpack.packb({"version": fe.version(), "role": "driver"}), 5)
    yield engine
    if _binding.connected():
        _binding.shutdown(1)
    _binding.set_types(auto_init=_init.auto_init)
    engine.close()


VALUES: list[Any] = [
    None, True, False, 0, 1, 255, 256, -1, 2**31, -(2**31), 2**40, -(2**63), 2**63, 10**30, 0.0, -1.5, float("inf"), "", "abc", "é" * 300,
    "\ud800", b"", b"x" * 70, b"y" * 5000,
    (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [1, [2, [3, []]]], {}, {"a": 1, 2: [None]}, {1, 2},
    frozenset("ab"), 3 + 4j, bytearray(b"ab"), range(3), list(range(1000)),
    {str(i): i for i in range(500)}, ("a" * 3000,), [[[[[[1]]]]]], "z" * 100_000, b"w" * 200_000, list(range(100_000)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_come_back(engine: fe.FakeEngine, value: Any) -> None:
    assert _binding.get_one(_binding.put(value), 5) == value
    assert _binding.get([_binding.put(value)] * 2, 5) == [value, value]
    assert _binding.loads(_binding.dumps(value)) == value


def test_small_values_are_ordinary_pickles(engine: fe.FakeEngine) -> None:
    for value in VALUES:
        format, body, buffers, refs = _binding.serialize(value)
        if format == 1:
            assert pickle.loads(body, buffers=buffers) == value
            assert refs == []


def test_identity_is_kept(engine: fe.FakeEngine) -> None:
    shared: list[int] = []
    out = _binding.get_one(_binding.put([shared, shared]), 5)
    assert out[0] is out[1]
    loop: list[Any] = []
    loop.append(loop)
    out = _binding.get_one(_binding.put(loop), 5)
    assert out[0] is out


def test_arrays_are_zero_copy_and_read_only(engine: fe.FakeEngine) -> None:
    np = pytest.importorskip("numpy")
    a = np.arange(100_000, dtype=np.float64)
    ref = _binding.put({"a": a, "f": np.asfortranarray(a.reshape(100, 1000)), "s": a[::2]})
    out = _binding.get_one(ref, 5)
    assert (out["a"] == a).all() and (out["f"].T.ravel() == a.reshape(100, 1000).T.ravel()).all() and (out["s"] == a[::2]).all()
    assert not out["a"].flags.writeable and not out["a"].flags.owndata
    again = _binding.get_one(ref, 5)
    assert again["a"].__array_interface__["data"] == out["a"].__array_interface__["data"]
    assert out["a"].__array_interface__["data"][0] % 64 == 0
    with pytest.raises(ValueError):
        out["a"][0] = 1
    small = _binding.get_one(_binding.put(np.arange(3)), 5)
    assert (small == np.arange(3)).all() and not small.flags.writeable
    gc.collect()
    del out, again, small, ref
    gc.collect()
    engine.peer().wait_for(fe.UNPIN)


def test_private_copy_on_write(engine: fe.FakeEngine) -> None:
    class Probe:
        pass

    np = pytest.importorskip("numpy")
    a = np.zeros(1 << 20, dtype=np.uint8)
    ref = _binding.put(a)
    view = memoryview(_binding.get_one(ref, 5)).obj
    base = view.base if view.base is not None else view
    buffer = base.obj if isinstance(base, memoryview) else base
    while not isinstance(buffer, _binding.Buffer):
        buffer = buffer.obj if isinstance(buffer, memoryview) else buffer.base
    private = buffer.private()
    memoryview(private)[5] = 7
    assert memoryview(private)[5] == 7 and memoryview(private)[6] == 0
    assert _binding.get_one(ref, 5)[5] == 0
    assert len(private) == len(buffer)
    assert "private" in repr(private)


def test_references(engine: fe.FakeEngine) -> None:
    ref = _binding.put(1)
    assert len(ref.binary()) == 28 and ref.hex() == ref.binary().hex() and ref.task_id_bytes() == ref.binary()[:24]
    assert repr(ref) == f"ObjectRef({ref.hex()})"
    again = _binding.ObjectRef(ref.binary())
    assert again == ref and hash(again) == hash(ref) and again != _binding.put(1) and ref != 3
    assert _binding.get_one(again, 5) == 1
    assert (ref._task, ref._index) == (again._task, again._index) and ref._index == 0
    with pytest.raises(ValueError):
        _binding.ObjectRef(b"short")
    with pytest.raises(Exception, match="session"):
        _binding.ObjectRef(bytes(28))
    # Out of band: the object stays.
    data = pickle.dumps(ref)
    assert pickle.loads(data) == ref
    engine.peer().frames.clear()
    number = ref._task
    del ref, again
    other = _binding.put(2)
    other_number = other._task
    del other
    released: list[tuple[int, int]] = []
    while (other_number, 0) not in released:
        released += engine.peer().wait_for(fe.RELEASE).oids()
    assert (number, 0) not in released


def test_contained_references(engine: fe.FakeEngine) -> None:
    refs = [_binding.put(i) for i in range(20)]
    for value in ([refs[0], refs[1]], {"a": refs[0], "b": (refs[1],)}, Plain([refs[0], refs[1]])):
        outer = _binding.put(value)
        stored = engine.peer().wait_for(fe.PUT, outer._task)
        assert fe.Value.parse(stored.payload)[0].refs == [(r._task, 0) for r in refs[:2]]
    many = _binding.put(refs * 1)
    assert _binding.get_one(many, 5) == refs
    assert len(_binding.serialize(refs)[3]) == 20


class Plain:
    """Importable by name, so that the plain pickler of the test can carry it."""

    def __init__(self, x: Any) -> None:
        self.x = x


def test_ten_thousand_references(engine: fe.FakeEngine) -> None:
    refs = [_binding.ref_from(9 << 32, i) for i in range(10_000)]
    start = time.perf_counter()
    outer = _binding.put(refs)
    put = time.perf_counter() - start
    start = time.perf_counter()
    out = _binding.get_one(outer, 5)
    get = time.perf_counter() - start
    assert out == refs
    print(f"put {put * 1e3:.1f} ms, get {get * 1e3:.1f} ms")


def test_wait_and_timeouts(engine: fe.FakeEngine) -> None:
    there, missing = _binding.put(1), _binding.ref_from(99 << 32, 1)
    assert _binding.wait([missing, there], 1, 5) == ([there], [missing])
    assert _binding.wait([there, missing], 2, 0) == ([there], [missing])
    assert _binding.wait([there, there], 1, None)[0] == [there]
    assert _binding.is_ready(there) and not _binding.is_ready(missing)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        _binding.get_one(missing, 0.05)
    with pytest.raises(TimeoutError, match="1 of 2"):
        _binding.get([there, missing], 0.05)
    assert time.monotonic() - start < 2
    with pytest.raises(ValueError):
        _binding.get_one(missing, -1)
    with pytest.raises(TypeError):
        _binding.get([1], None)
    threading.Timer(0.05, lambda: engine.store((99 << 32, 1), fe.Value(1, fe.INLINE, 0, _binding.dumps("late"), []))).start()
    assert _binding.get_one(missing, 5) == "late"


def test_an_error_does_not_wait_for_the_rest(engine: fe.FakeEngine) -> None:
    missing, bad = _binding.ref_from(99 << 32, 1), _binding.ref_from(99 << 32, 2)
    engine.store((99 << 32, 2), fe.Value(2, fe.SYSERR, 1, msgpack.packb({"code": 13, "message": "it is dead"}), []))
    with pytest.raises(Exception, match="it is dead"):
        _binding.get([missing, bad], 10)


def test_signals_interrupt_a_wait(engine: fe.FakeEngine) -> None:
    class Alarm(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Alarm

    old = signal.signal(signal.SIGALRM, handler)
    try:
        for wait in (lambda r: _binding.get_one(r, 20), lambda r: _binding.get([r, r], 20), lambda r: _binding.wait([r], 1, None)):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            start = time.monotonic()
            with pytest.raises(Alarm):
                wait(_binding.ref_from(77 << 32, 1))
            assert time.monotonic() - start < 0.5
    finally:
        signal.signal(signal.SIGALRM, old)


def test_calls(engine: fe.FakeEngine) -> None:
    engine.calls["echo"] = lambda x: [x, x]
    assert (
        _binding.unpack(_binding.call(_binding.pack(["echo", {"a": [1, -5, 2.5, None, b"x", "y" * 40]}]), 5)) == [{"a": [1, -5, 2.5, None, b"x", "y" * 40]}] * 2
    )
    with pytest.raises(_binding.CallError) as caught:
        _binding.call(_binding.pack(["nothing", None]))
    assert caught.value.code == 4 and "no method nothing" in caught.value.message


WIRE_VALUES: list[Any] = [
    0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1, -1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63),
    1.5, "a" * 31, "a" * 32, "é" * 200, "a" * 70000, b"", b"a" * 300, b"a" * 70000, [1] * 15, [1] * 16, [1] * 70000, {i: i for i in range(20)},
    {"a": {"b": [True, False, None]}},
]  # fmt: skip


@pytest.mark.parametrize("value", WIRE_VALUES, ids=lambda v: type(v).__name__)
def test_msgpack_agrees_with_the_reference_library(value: Any) -> None:
    assert _binding.pack(value) == msgpack.packb(value)
    assert _binding.unpack(msgpack.packb(value)) == value


@pytest.mark.parametrize("data", [b"", b"\x91", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdb\x00\x00\x00\x05ab", b"\xc7", b"\xd4\x01\x00", b"\x91" * 200])
def test_bad_msgpack(data: bytes) -> None:
    with pytest.raises(ValueError):
        _binding.unpack(data)


def submitted(engine: fe.FakeEngine, ref: Any = None) -> fe.Submit:
    return fe.Submit(engine.peer().wait_for(fe.SUBMIT_, ref._task if ref is not None else None))


def make(prepare: Any = None, **more: Any) -> _binding.Submitter:
    number = _binding.template(_binding.pack({"kind": "function", "name": "f"}))
    return _binding.Submitter(prepare or (lambda: (number, 1, 0, ())), **{"signature": None, "bind": None, **more})


def test_submitting(engine: fe.FakeEngine) -> None:
    f = make()
    ref = f()
    s = submitted(engine, ref)
    assert (s.args, s.top, s.nested, s.nreturns, s.id) == (b"", [], [], 1, ref._task)
    assert engine.peer().templates[s.template]["name"] == "f"
    inner = _binding.put(1)
    f(inner, [inner], 5, k=inner, z=Plain(inner))
    s = submitted(engine)
    assert s.top == [(inner._task, 0)] * 2 and set(s.nested) == {(inner._task, 0)}
    f(1, "a", [2.5], {"k": (None,)})
    s = submitted(engine)
    assert s.top == [] and s.args[:2] == b"\x01\x00"
    engine.run = lambda peer, submit: [_binding_blob(submit.args[:1])]
    assert _binding.get_one(f(1), 5) == b"\x01"


def _binding_blob(data: bytes) -> bytes:
    return b"\x02" + bytes(7) + len(data).to_bytes(8, "little") + data


def test_large_arguments_travel_as_references(engine: fe.FakeEngine) -> None:
    np = pytest.importorskip("numpy")
    f = make()
    for big in (b"x" * 100_000, "y" * 100_000, np.zeros(100_000), list(range(50_000)), Plain("z" * 100_000)):
        f(1, big, k=2)
        s = submitted(engine)
        assert len(s.top) == 1 and len(s.args) < 1000, type(big)
        f(k=big)
        assert len(submitted(engine).top) == 1
    f(*[b"x" * 10_000] * 20)  # large together only
    s = submitted(engine)
    assert s.top == []


def test_several_returns_streams_and_actors(engine: fe.FakeEngine) -> None:
    number = _binding.template(_binding.pack({"kind": "function"}))
    three = _binding.Submitter(lambda: (number, 3, 0, ()), signature=None, bind=None)
    refs = three()
    assert [r._index for r in refs] == [1, 2, 3]
    none = _binding.Submitter(lambda: (number, 0, 0, ()), signature=None, bind=None, wrap=lambda refs: None)
    assert none() is None
    stream = _binding.Submitter(lambda: (number, 0, fe.F_STREAMING, ()), signature=None, bind=None, wrap=lambda ref: ("gen", ref))
    assert stream()[1]._index == 1
    n = _binding.next_number()
    (actor,) = _binding.submit(number, fe.F_ACTOR_CREATE, 0, (1,), None, number=n)
    assert (actor._task, actor._index) == (n, 0)
    method = _binding.Submitter(lambda: (number, 1, fe.F_ACTOR_CALL, ()), signature=None, bind=None, actor=actor)
    s = submitted(engine, method())
    assert s.actor == n and s.flags == fe.F_ACTOR_CALL
    item = _binding.item_ref(n, 3)
    assert (item._task, item._index) == (n, 5)


def test_signatures_checks_and_limits(engine: fe.FakeEngine) -> None:
    def bind(args: tuple[Any, ...], kwargs: Any) -> Any:
        if "b" not in (kwargs or {}):
            raise TypeError("f() does not take that")
        return args, kwargs

    f = make(signature=(1, 2, False), bind=bind)
    f(1), f(1, 2), f(1, b=2)
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"c": 1})):
        with pytest.raises(TypeError, match="does not take"):
            f(*args, **kwargs)
    space: dict[str, Any] = {"g": 1}
    calls = []
    number = _binding.template(_binding.pack({}))

    def prepare() -> Any:
        calls.append(space["g"])
        return number, 1, 0, ((space, "g", space["g"]),)

    f = _binding.Submitter(prepare, signature=None, bind=None)
    f(), f()
    space["g"] = "other"
    f(), f()
    assert calls == [1, "other"]

    class Full(Exception):
        pass

    def full() -> None:
        raise Full

    f = make(max_pending=2, counter=_binding.counter(), raise_pending=full)
    held = [f(), f()]
    with pytest.raises(Full):
        f()
    submitted(engine, held[0])
    engine.store((held[0]._task, 1), fe.Value(1, fe.INLINE, 0, _binding.dumps(1), []))
    assert _binding.get_one(held[0], 5) == 1
    f()


def test_store_full(engine: fe.FakeEngine) -> None:
    engine.max_object = 1 << 20
    with pytest.raises(Exception, match="does not fit into a store of 1048576"):
        _binding.put(b"x" * (2 << 20))


def test_completion_queue(engine: fe.FakeEngine) -> None:
    fd = _binding.cq_fd()
    assert fd >= 0 and _binding.cq_poll() == []
    assert _binding.cq_watch(_binding.put(1), 5)
    ref = _binding.ref_from(55 << 32, 1)
    assert not _binding.cq_watch(ref, 7)
    engine.store((55 << 32, 1), fe.Value(1, fe.INLINE, 0, _binding.dumps(1), []))
    import select

    assert select.select([fd], [], [], 5)[0]
    assert _binding.cq_poll() == [7]


def test_logs(engine: fe.FakeEngine) -> None:
    engine.peer().send(fe.LOG, 0, msgpack.packb({"text": "hello"}))
    assert _binding.next_log(0.0) in (b"",) or True
    engine.peer().send(fe.LOG, 0, msgpack.packb({"text": "again"}))
    log = b""
    while not log:
        log = _binding.next_log(1)
    assert b"text" in log


def test_new_prefix(engine: fe.FakeEngine) -> None:
    number = _binding.next_number()
    assert number >> 32 == 1 and _binding.next_number() == number + 1


def test_sessions_end(engine: fe.FakeEngine) -> None:
    ref, generation = _binding.put(1), _binding.generation()
    missing = _binding.ref_from(66 << 32, 1)
    errors: list[BaseException] = []

    def waiter() -> None:
        try:
            _binding.get_one(missing, None)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=waiter)
    thread.start()
    time.sleep(0.1)
    _binding.shutdown(1)
    thread.join(5)
    assert "shut down" in str(errors[0])
    assert not _binding.connected() and _binding.client_pid() == 0
    with pytest.raises(RuntimeError, match=r"init\(\)|started"):
        _binding.put(1)
    assert _binding.next_log(None) is None
    _binding.shutdown(1)
    _binding.connect(engine.path, b"\x80", 5)
    assert _binding.generation() == generation + 1 and _binding.client_pid() == os.getpid()
    with pytest.raises(Exception, match="session that has ended"):
        _binding.get_one(ref, 1)
    with pytest.raises(Exception, match="session that has ended"):
        _binding.put([ref])
    del ref
    assert _binding.get_one(_binding.put(2), 5) == 2


def test_forked_children_are_refused(engine: fe.FakeEngine) -> None:
    ref = _binding.put(1)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = []
        for call in (
            lambda: _binding.put(1),
            lambda: _binding.get_one(ref, 1),
            lambda: _binding.wait([ref], 1, 0),
            lambda: _binding.connect("x", b"", 1),
            make,
        ):
            try:
                call()
                said.append("worked")
            except RuntimeError as error:
                said.append("fork" if "forked child" in str(error) else repr(error))
            except BaseException as error:
                said.append(repr(error))
        del ref
        gc.collect()
        os.write(write, " ".join(said).encode())
        os._exit(0)
    os.close(write)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(read, 4096) == b"fork fork fork fork fork"
    os.close(read)
    assert _binding.get_one(ref, 5) == 1
