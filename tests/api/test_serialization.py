"""Values that take more than pickle, between drivers and workers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import raygo
from raygo.util import deregister_serializer, register_serializer

pytestmark = pytest.mark.usefixtures("session")


@raygo.remote
def same(value: Any) -> Any:
    return value


class Connection:
    """Has a lock, so that pickle refuses it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.lock = threading.Lock()


@pytest.fixture
def registered() -> Iterator[None]:
    register_serializer(Connection, serializer=lambda c: c.url, deserializer=Connection)
    yield
    deregister_serializer(Connection)


@pytest.mark.usefixtures("registered")
def test_a_worker_answers_with_values_registered_in_the_driver() -> None:
    assert raygo.get(same.remote(Connection("a"))).url == "a"
    assert raygo.get(same.remote([Connection("b")]))[0].url == "b"
    assert type(raygo.get(raygo.put(Connection("c")))) is Connection


def test_what_is_taken_back_no_longer_travels() -> None:
    register_serializer(Connection, serializer=lambda c: c.url, deserializer=Connection)
    assert raygo.get(same.remote(Connection("a"))).url == "a"
    deregister_serializer(Connection)
    with pytest.raises(TypeError, match="lock"):
        raygo.put(Connection("b"))


def test_a_large_global_is_named_behind_its_helper() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "table": bytes(12 << 20)}
    exec(compile("def helper(): return len(table)\ndef f(): return helper()", "<cell>", "exec"), space)
    f = raygo.remote(space["f"])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert raygo.get(f.remote()) == 12 << 20
    (warning,) = seen
    assert "'table' of global variable 'helper' alone takes 12.0 MiB" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda lock: same.remote(lock), "argument 0"),
        (lambda lock: same.remote(value={"k": [lock]}), "argument 'value'"),
        (lambda lock: same.remote([{"guard": lock}]), "argument 0"),
    ],
)
def test_an_argument_that_cannot_travel_is_named(call: Any, where: str) -> None:
    with pytest.raises(TypeError) as refused:
        call(threading.Lock())
    assert where in str(refused.value) and "_thread.lock" in str(refused.value) and "tuple" not in str(refused.value)
