"""Metrics, the state API, named actors, serialisation checks."""
import io
import socket
import threading
import time

import pytest

import raygo
from raygo.util import inspect_serializability, list_named_actors, metrics, state
from raygo.util.state.common import Humanify, TaskState


@pytest.fixture(scope="module", autouse=True)
def session():
    raygo.shutdown()
    raygo.init(num_cpus=2, log_to_driver=False, namespace="shop", object_store_memory=100 * 2**20)
    yield
    raygo.shutdown()


def test_metrics_of_driver_and_workers():
    calls = metrics.Counter("test_calls", description="Calls.", tag_keys=("who",)).set_default_tags({"who": "driver"})
    calls.inc()
    calls.inc(2)
    metrics.Gauge("test_level").set(3.5)
    metrics.Histogram("test_seconds", boundaries=[0.1, 1.0]).observe(0.5)

    @raygo.remote
    def work(counter):
        counter.inc(tags={"who": "worker"})

    raygo.get([work.remote(calls) for _ in range(4)])
    deadline = time.monotonic() + 10
    while 'who="worker"} 4' not in (text := metrics.prometheus_text()).replace(".0", "") and time.monotonic() < deadline:
        time.sleep(0.05)
    plain = text.replace(".0\n", "\n")
    assert "test_calls" in text and 'who="worker"} 4\n' in plain and 'who="driver"} 3\n' in plain
    assert "test_level" in text and "3.5" in text
    assert 'le="0.1"' in text and "test_seconds_count" in text


def test_metrics_refuse():
    counter = metrics.Counter("tagged", tag_keys=("a",))
    for wrong, kind in ((lambda: counter.inc(0, tags={"a": "1"}), ValueError), (lambda: counter.inc(), ValueError),
                        (lambda: counter.inc(tags={"b": "1"}), ValueError), (lambda: counter.inc(tags={"a": 1}), TypeError),
                        (lambda: metrics.Counter(""), ValueError), (lambda: metrics.Counter("1x"), ValueError),
                        (lambda: metrics.Histogram("h"), ValueError), (lambda: metrics.Histogram("h", boundaries=[2, 1]), ValueError),
                        (lambda: metrics.Gauge("g", tag_keys="abc"), TypeError), (lambda: counter.inc("x", tags={"a": "1"}), TypeError)):
        with pytest.raises(kind):
            wrong()
    assert counter.info == {"name": "tagged", "description": "", "tag_keys": ("a",), "default_tags": {}}


@raygo.remote(num_cpus=0)
class Clerk:
    def answer(self):
        return 42


@raygo.remote
def listed_task():
    return 1


def test_state_lists_and_counts():
    clerk = Clerk.options(name="clerk").remote()
    assert raygo.get(clerk.answer.remote()) == 42
    raygo.get([listed_task.remote() for _ in range(3)])
    kept = raygo.put(b"x" * 200_000)

    actors = state.list_actors(filters=[("state", "=", "ALIVE")])
    assert [a.class_name for a in actors] == ["Clerk"] and actors[0]["name"] == "clerk" and actors[0].pid
    assert state.get_actor(actors[0].actor_id).actor_id == actors[0].actor_id
    assert state.list_actors(filters=[("name", "!=", "clerk")]) == []
    tasks = state.list_tasks(filters=[("name", "=", "listed_task")], detail=True)
    assert len(tasks) == 3 and {t.state for t in tasks} == {"FINISHED"} and isinstance(tasks[0], TaskState)
    assert state.get_task(tasks[0].task_id).name == "listed_task"
    assert len(state.list_tasks(limit=2)) == 2

    @raygo.remote
    def fails():
        raise ValueError("no")

    raygo.wait([fails.remote()])
    (failed,) = state.list_tasks(filters=[("state", "=", "FAILED")])
    assert (failed.name, failed.func_or_class_name, failed.error_type) == ("fails", "fails", "TASK_EXECUTION_EXCEPTION")
    counts = state.summarize_tasks()["cluster"]["summary"]
    assert counts["listed_task"]["state_counts"]["FINISHED"] == 3 and counts["fails"]["state_counts"] == {"FAILED": 1}
    assert counts["Clerk.__init__"]["type"] == "ACTOR_CREATION_TASK" and counts["Clerk.answer"]["type"] == "ACTOR_TASK"
    assert state.summarize_actors()["cluster"]["summary"]["Clerk"]["state_counts"] == {"ALIVE": 1}
    assert any(o.object_id == kept.hex() and o.object_size >= 200_000 for o in state.list_objects(limit=1000))
    assert state.get_objects(kept.hex())[0].object_id == kept.hex()
    assert state.summarize_objects()["cluster"]["total_objects"] >= 1
    assert state.list_nodes()[0].state == "ALIVE" and state.list_workers() and state.list_jobs()
    assert list_named_actors() == ["clerk"] and {"name": "clerk", "namespace": "shop"} in list_named_actors(all_namespaces=True)
    for wrong in ([("nonsense", "=", 1)], [("state", "~", 1)], ["state"]):
        with pytest.raises(ValueError):
            state.list_actors(filters=wrong)
    raygo.kill(clerk)


def test_readable_numbers():
    assert Humanify.memory(1536) == "1.500 KiB" and Humanify.memory(12) == "12 B" and Humanify.duration(90_000) == "0:01:30"


def test_what_cannot_be_pickled_is_named():
    lock = threading.Lock()

    class Client:
        def __init__(self):
            self.pool = {"main": [1, socket.socket()]}

    def uses_lock():
        return lock

    client = Client()
    for value, path in ((uses_lock, "'lock'"), (client, "client.pool['main'][1]"), ((i for i in ()), "client")):
        report = io.StringIO()
        fine, failures = inspect_serializability(value, name="client", depth=5, print_file=report)
        assert not fine and any(path in failure.path for failure in failures) and path in report.getvalue()
    client.pool["main"][1].close()
    assert inspect_serializability([1, 2], print_file=io.StringIO()) == (True, set())


def test_registered_serializers_work_in_workers():
    class Handle:
        def __init__(self, path):
            self.path, self.lock = path, threading.Lock()

    raygo.util.register_serializer(Handle, serializer=lambda h: h.path, deserializer=lambda path: Handle(path))

    @raygo.remote
    def path_of(handle):
        return handle.path, handle.lock is not None

    try:
        assert raygo.get(path_of.remote(Handle("/x"))) == ("/x", True)
        assert raygo.get(raygo.put([Handle("/z")]))[0].path == "/z"
    finally:
        raygo.util.deregister_serializer(Handle)
    with pytest.raises(TypeError):
        raygo.put(Handle("/y"))


def test_absent_names_are_errors():
    for module, name in ((raygo.util, "no_such_name"), (raygo.tune, "Tuners"), (raygo.util.accelerators, "NVIDIA_INVALID")):
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)
