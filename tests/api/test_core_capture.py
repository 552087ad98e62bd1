"""What functions and classes take along, how their calls are checked, and the templates they become.  No engine runs here."""

from __future__ import annotations

import functools
import inspect
import itertools
import pickle
import sys
import threading
import types
from typing import Any

import cloudpickle
import numpy as np
import pytest

import raygo
from raygo import _actor_meta, _binding, _capture
from raygo._actor_meta import Meta
from raygo._signature import Signature
from raygo.actor import ActorHandle


def notebook(source: str) -> dict[str, Any]:
    """Run it as a notebook would, in a namespace that no worker can import."""
    space: dict[str, Any] = {"__name__": "__main__", "raygo": raygo}
    exec(source, space)
    return space


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Catches the templates that would be sent."""
    sent: list[dict[str, Any]] = []

    def template(data: bytes) -> int:
        sent.append(_binding.unpack(data))
        return len(sent)

    monkeypatch.setattr(_binding, "template", template)
    return sent


# ---- captured globals


def names(target: Any) -> set[str]:
    return {name for _, name, _ in _capture.captured(target)}


def test_globals_are_followed_through_functions_classes_and_remotes() -> None:
    space = notebook("""
import math
scale = 3
def leaf(): return scale
def middle(): return leaf()
class Tool:
    size = 2
    def use(self): return middle()
    @property
    def area(self): return depth
depth = 4
@raygo.remote
def task(): return middle() + Tool().use()
@raygo.remote
def caller(): return task.remote()
@raygo.remote
class Keeper:
    def go(self): return caller.remote()
def top(): return [Keeper.remote() for _ in range(count)]
count = 1
""")
    assert names(space["top"]) == {"Keeper", "count", "caller", "task", "middle", "Tool", "leaf", "scale", "depth"}


def test_importable_things_are_not_followed() -> None:
    space = notebook("from json import dumps\ndef f(): return dumps(print)")
    assert names(space["f"]) == {"dumps"}
    assert _capture.by_name(json_dumps()) and not _capture.by_name(space["f"])


def test_a_module_that_another_thread_imports_just_now_registers_nothing(monkeypatch):
    """The first calls of two threads: one imports cloudpickle while the other looks for what is registered with it."""
    for half in ({}, {"cloudpickle.cloudpickle": types.ModuleType("cloudpickle.cloudpickle")}):
        monkeypatch.delitem(sys.modules, "cloudpickle.cloudpickle")
        monkeypatch.setitem(sys.modules, "cloudpickle", types.ModuleType("cloudpickle"))
        for name, module in half.items():
            monkeypatch.setitem(sys.modules, name, module)
        assert _capture.by_name(json_dumps())
        monkeypatch.undo()
    assert _capture.by_name(json_dumps())


def json_dumps() -> Any:
    import json

    return json.dumps


def test_closures_and_partials_are_followed() -> None:
    space = notebook("""
import functools
factor = 2
def helper(x): return x * factor
def outer():
    inner = lambda x: helper(x)
    return lambda x: inner(x)
closed = outer()
part = functools.partial(helper, 3)
def g(): return part()
""")
    assert names(space["closed"]) >= {"helper", "factor"}
    assert names(space["g"]) == {"part", "factor"}


def test_a_name_that_is_not_bound_yet_counts_as_changed() -> None:
    space = notebook("def f(): return later()")
    (row,) = _capture.captured(space["f"])
    assert row[1] == "later" and row[0].get("later") is not row[2]


def test_attributes_are_no_globals() -> None:
    space = notebook("helper = 1\ndef f(x): return x.helper")
    assert names(space["f"]) == set()


# ---- exports


def test_redefinition_makes_another_template(templates: list[dict[str, Any]]) -> None:
    space = notebook("""
def helper(): return "old"
@raygo.remote
def f(): return helper()
""")
    task = space["f"]._task
    task.prepare()
    task.prepare()
    assert templates[0]["key"] == templates[1]["key"]
    exec("def helper(): return 'new'", space)
    *_, check = task.prepare()
    assert templates[2]["key"] != templates[0]["key"]
    assert all(namespace[name] is value for namespace, name, value in check)
    assert cloudpickle.loads(templates[2]["blob"])() == "new"


def test_template_of_a_function(templates: list[dict[str, Any]]) -> None:
    @raygo.remote(num_cpus=0.5, num_returns=2, max_retries=-1, resources={"w": 1}, retry_exceptions=[KeyError])
    def f() -> None: ...

    number, returns, flags, _ = f.options(name="named")._task.prepare()
    assert (number, returns, flags) == (1, 2, 0)
    (made,) = templates
    assert made["kind"] == "function" and made["name"] == "named" and made["resources"] == {"CPU": 5_000, "w": 10_000}
    assert made["max_retries"] == -1 and made["retry_exceptions"] == 2 and made["num_returns"] == 2
    _, kinds = cloudpickle.loads(made["blob"])
    assert kinds == (KeyError,)


def test_generators_stream(templates: list[dict[str, Any]]) -> None:
    @raygo.remote
    def gen() -> Any:
        yield 1

    _, returns, flags, _ = gen._task.prepare()
    assert (returns, flags) == (0, 64) and templates[0]["streaming"]
    _, returns, flags, _ = gen.options(num_returns="dynamic")._task.prepare()
    assert (returns, flags) == (1, 0) and templates[1]["dynamic"]


def test_gpu_tasks_get_a_worker_of_their_own(templates: list[dict[str, Any]]) -> None:
    f = raygo.remote(num_gpus=1)(lambda: None)
    f._task.prepare()
    assert templates[0]["max_calls"] == 1
    raygo.remote(num_gpus=1, max_calls=0)(lambda: None)._task.prepare()
    assert "max_calls" not in templates[1]


def test_equal_options_are_made_once() -> None:
    f = raygo.remote(lambda: None)
    assert f.options(num_cpus=2) is f.options(num_cpus=2)
    assert f.options(num_cpus=2) is not f.options(num_cpus=3)
    f.options(resources={"w": 1})  # without a hash: made anew, and no error


def test_big_blobs_go_through_the_store(templates: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[bytes] = []

    class Ref:
        _task, _index = 9, 0

    def put_blob(data: bytes, format: int) -> Any:
        put.append(data)
        return Ref()

    monkeypatch.setattr(_binding, "put_blob", put_blob)
    space = notebook("""
training_table = bytearray(12 << 20)
small = 1
@raygo.remote
def f(): return len(training_table) + small
""")
    with pytest.warns(UserWarning, match=r"remote function f is very large \(12.0 MiB\).*'training_table' alone takes 12.0 MiB"):
        space["f"]._task.prepare()
    assert templates[0]["blob_object"] == [9, 0] and "blob" not in templates[0]
    space["f"]._task.prepare()
    assert len(put) == 1


def test_what_cannot_travel_is_named(templates: list[dict[str, Any]]) -> None:
    space = notebook("""
import threading
class Config:
    def __init__(self): self.guards = {"write": threading.Lock()}
config = Config()
def helper(): return config
@raygo.remote
def f(): return helper()
@raygo.remote
class C:
    def m(self): return config
""")
    with pytest.raises(TypeError, match="remote function f.*'helper'.*'config'.*'guards'.*'write'.*lock"):
        space["f"]._task.prepare()
    with pytest.raises(TypeError, match="actor class C.*method 'm'.*'config'"):
        space["C"]._creation.template(None, "", False)


def test_blame_survives_odd_objects() -> None:
    class Odd:
        def __getattribute__(self, name: str) -> Any:
            raise ValueError("no")

    lock = threading.Lock()
    assert "lock" in _capture.blame([1, {"a": lock}])
    with pytest.raises(TypeError):
        _capture.dumps(lock, "thing", lock)
    assert isinstance(_capture.blame(np.zeros(3)), str)
    del Odd


# ---- signatures


def _f1(a, b=2, *rest, c, **more): ...  # type: ignore[no-untyped-def]
def _f2(a, /, b, c=1): ...  # type: ignore[no-untyped-def]
def _f3(): ...  # type: ignore[no-untyped-def]
def _f4(*args): ...  # type: ignore[no-untyped-def]
def _f5(a, b, /, *, c=1): ...  # type: ignore[no-untyped-def]
def _f6(self, a, **more): ...  # type: ignore[no-untyped-def]
@functools.wraps(_f2)
def _f7(*args, **kwargs): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(("function", "skip"), [(_f1, 0), (_f2, 0), (_f3, 0), (_f4, 0), (_f5, 0), (_f6, 1), (_f7, 0)])
def test_signatures_agree_with_inspect(function: Any, skip: int) -> None:
    mine = Signature(function, "f", skip)
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    reference = inspect.Signature(parameters)
    low, high, kwargs_ok = mine.quick
    for signature in (mine, Signature.from_description(pickle.loads(pickle.dumps(mine.describe())))):
        for n, r in itertools.product(range(5), range(4)):
            for chosen in itertools.combinations("abcdz", r):
                args, kwargs = (0,) * n, dict.fromkeys(chosen, 0)
                try:
                    reference.bind(*args, **kwargs)
                    fits = True
                except TypeError:
                    fits = False
                if fits:
                    assert signature.bind(args, kwargs) == (args, kwargs)
                else:
                    with pytest.raises(TypeError, match=r"f\(\): .*signature is f\("):
                        signature.bind(args, kwargs)
                quick = low <= n and (high < 0 or n <= high) and (not kwargs or kwargs_ok)
                assert fits or not quick


def test_builtins_without_a_signature_are_left_to_the_worker() -> None:
    assert raygo.remote(max)._task.signature.quick == (0, -1, True)
    assert Signature(max, "max").bind((), {"x": 1}) == ((), {"x": 1})
    with pytest.raises(TypeError, match="iterable"):
        Signature(dict.fromkeys, "fromkeys").bind((), {"x": 1})


# ---- remote objects as values


def test_remote_functions_pickle_also_when_they_mention_themselves() -> None:
    space = notebook("""
@raygo.remote(num_cpus=2)
def depth(n, step=1):
    "Counts down."
    return 0 if n == 0 else depth.remote(n - step)
""")
    got = pickle.loads(cloudpickle.dumps(space["depth"]))
    assert got._default_options == {"num_cpus": 2} and got._function.__globals__["depth"] is got
    assert got._task.signature.quick == (1, 2, False) and got.__doc__ == "Counts down." and got.__name__ == "depth"
    inner = pickle.loads(cloudpickle.dumps(space["depth"]._function))
    assert inner.__globals__["depth"]._task.signature.quick == (1, 2, False)


def test_actor_classes_pickle_also_when_they_mention_themselves() -> None:
    space = notebook("""
@raygo.remote(num_cpus=0)
class Node:
    LIMIT = 5
    def __init__(self, depth): self.child = Node.remote(depth - 1) if depth else None
    def who(self, *, loud=False): return Node
""")
    got = pickle.loads(cloudpickle.dumps(space["Node"]))
    assert got.LIMIT == 5 and got._default_options == {"num_cpus": 0} and isinstance(got, type(space["Node"]))
    assert got._creation.signature.quick == (1, 1, False)
    cls = pickle.loads(cloudpickle.dumps(space["Node"]._creation.target))
    assert cls.who.__globals__["Node"].LIMIT == 5


def test_direct_calls_are_refused_in_words() -> None:
    @raygo.remote
    def sq(n: int) -> int:
        return n * n

    @raygo.remote
    class C: ...

    with pytest.raises(TypeError, match=r"cannot be called directly.*sq\.remote\(\)"):
        sq(3)
    assert sq._function(3) == 9
    with pytest.raises(TypeError, match=r"cannot be instantiated directly.*C\.remote\(\)"):
        C()
    with pytest.raises(TypeError, match="not currently supported"):

        class D(C): ...  # type: ignore[misc, valid-type]

    with pytest.raises(TypeError, match="not made by hand"):
        ActorHandle(None, None)


# ---- what handles know


class Sample:
    def __init__(self, a: int) -> None: ...

    def plain(self, x: int, y: int = 1) -> None: ...

    async def soon(self) -> None: ...

    def gen(self) -> Any:
        yield 1

    @staticmethod
    def fixed(a: int) -> int:
        return a

    @classmethod
    def made(cls, a: int) -> int:
        return a

    @raygo.method(num_returns=2, concurrency_group="io")
    def two(self) -> Any: ...

    def __call__(self, x: int) -> int:
        return x

    def __repr__(self) -> str:
        return "sample"

    number = 3


def test_meta_reads_and_travels() -> None:
    sent = Meta.of_class(Sample, -1).to_bytes()
    _actor_meta._known.clear()  # as in another process
    for meta in (Meta.of_class(Sample, -1), Meta.from_bytes(sent)):
        assert {"plain", "soon", "gen", "fixed", "made", "two", "__call__", "__ray_ready__"} <= set(meta.methods)
        assert "number" not in meta.methods and meta.is_async and meta.shadowed == ["__repr__"]
        assert meta.methods["gen"].generator and not meta.methods["plain"].generator
        assert [meta.methods[name].signature.quick[:2] for name in ("plain", "fixed", "made", "two")] == [(1, 2), (1, 1), (1, 1), (0, 0)]
        assert meta.methods["two"].options == {"num_returns": 2, "concurrency_group": "io"}
        assert meta.call("plain") is meta.call("plain")


def test_template_of_a_method(templates: list[dict[str, Any]]) -> None:
    meta = Meta.of_class(Sample, -1)
    _, returns, flags, _ = meta.call("two").prepare()
    assert (returns, flags) == (2, 32) and templates[0]["method"] == "two" and templates[0]["group"] == "io"
    meta.call("two").prepare()
    assert len(templates) == 1  # one for all handles
    meta.call("plain", {"max_task_retries": 3, "retry_exceptions": [KeyError]}).prepare()
    assert templates[1]["max_task_retries"] == 3 and cloudpickle.loads(templates[1]["blob"]) == (KeyError,)
    assert templates[0]["max_task_retries"] == -2
    assert meta.call("gen").prepare()[1:3] == (0, 96)


def test_template_of_an_actor(templates: list[dict[str, Any]]) -> None:
    C = raygo.remote(max_restarts=2, concurrency_groups={"io": 3}, max_concurrency=7)(Sample)
    first = C._creation.template(None, "", False)
    assert C._creation.template(None, "", False) == first and len(templates) == 1
    made = templates[0]
    assert made["kind"] == "actor" and made["groups"] == {"io": 3} and made["max_restarts"] == 2 and made["max_concurrency"] == 7
    assert made["is_async"] and made["resources"] == {} and made["placement"] == {"CPU": 10_000}
    C._creation.template("till", "shop", True)
    assert templates[1]["actor_name"] == "till" and templates[1]["namespace"] == "shop" and templates[1]["detached"]


def test_groups_must_exist() -> None:
    with pytest.raises(ValueError, match="group 'io'.*does not define"):
        raygo.remote(Sample)
    with pytest.raises(ValueError, match="at least 1"):
        raygo.remote(concurrency_groups={"io": 0})(Sample)
    assert raygo.remote(concurrency_groups=[{"name": "io", "max_concurrency": 2}])(Sample)._creation.groups() == {"io": 2}
