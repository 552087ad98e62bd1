"""Options: what is accepted, what is refused and how, and what they become."""

from __future__ import annotations

from typing import Any

import pytest

import raygo
from raygo import _options


def f() -> int:
    return 1


class C:
    def m(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"num_cpus": "2"}, TypeError, r"The type of keyword 'num_cpus' must be .*float.*int.*NoneType.*, but received type <class 'str'>"),
        ({"num_cpus": -1}, ValueError, "The quantity of resource num_cpus cannot be negative"),
        ({"num_cpus": 0.00001}, ValueError, "cannot go beyond 0.0001"),
        ({"num_gpus": 1.5}, ValueError, "whole number"),
        ({"resources": {"CPU": 1}}, ValueError, "Use the 'num_cpus' and 'num_gpus' keyword"),
        ({"resources": {"x": -1}}, ValueError, "resource x cannot be negative"),
        ({"resources": {"x": "1"}}, ValueError, "must be a number"),
        ({"max_retries": -2}, ValueError, "only accepts None, 0, -1 or a positive integer"),
        ({"max_calls": -1}, ValueError, "only accepts None, 0 or a positive integer"),
        ({"num_returns": "many"}, ValueError, "'num_returns' only accepts"),
        ({"num_returns": -1}, ValueError, "num_returns"),
        ({"num_returns": "streaming"}, ValueError, "generator"),
        ({"retry_exceptions": [1]}, ValueError, "retry_exceptions must be either a boolean or a list of exceptions"),
        ({"retry_exceptions": "yes"}, TypeError, "retry_exceptions"),
        ({"scheduling_strategy": "SIDEWAYS"}, ValueError, "DEFAULT"),
        ({"label_selector": {"a": 1}}, ValueError, "label_selector"),
        ({"runtime_env": 3}, TypeError, "runtime_env"),
        ({"_generator_backpressure_num_objects": 0}, ValueError, "not allowed"),
        ({"max_restarts": 1}, ValueError, "Invalid option keyword max_restarts for remote functions"),
        ({"object_store_memory": 1}, ValueError, "not implemented for tasks"),
    ],
)
def test_task_options_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        raygo.remote(**options)(f)
    if "max_calls" not in options:
        with pytest.raises(error, match=words):
            raygo.remote(f).options(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"lifetime": "eternal"}, ValueError, "'detached'"),
        ({"max_restarts": -2}, ValueError, "max_restarts"),
        ({"max_concurrency": 0}, ValueError, "max_concurrency"),
        ({"get_if_exists": True}, ValueError, "name must be specified"),
        ({"name": ""}, ValueError, "empty"),
        ({"namespace": ""}, ValueError, "namespace"),
        ({"max_retries": 1}, ValueError, "Invalid option keyword max_retries for actors"),
        ({"concurrency_groups": "io"}, TypeError, "concurrency_groups"),
        ({"max_pending_calls": -2}, ValueError, "max_pending_calls"),
    ],
)
def test_actor_options_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        raygo.remote(**options)(C)


def test_decoration_only_options() -> None:
    with pytest.raises(ValueError, match="'max_calls' is not supported in '.options"):
        raygo.remote(f).options(max_calls=1)
    with pytest.raises(ValueError, match="'concurrency_groups' is not supported in '.options"):
        raygo.remote(C).options(concurrency_groups={"io": 1})


def test_decorator_misuse() -> None:
    for bad in (lambda: raygo.remote(5), lambda: raygo.remote(), lambda: raygo.remote(f, num_cpus=1), lambda: raygo.remote(num_cpus=1)(5)):
        with pytest.raises(TypeError, match="@ray.remote decorator"):
            bad()
    with pytest.raises(ValueError, match="@ray.method decorator"):
        raygo.method(f)
    with pytest.raises(ValueError, match="@ray.method decorator"):
        raygo.method(num_cpus=1)


def test_async_functions_are_refused() -> None:
    async def g() -> None: ...

    with pytest.raises(ValueError, match="'async def' should not be used for remote tasks"):
        raygo.remote(g)


def test_demands() -> None:
    assert _options.resources_of({}, 1) == {"CPU": 10_000}
    assert _options.resources_of({"num_cpus": 0}, 1) == {}
    options = {"num_cpus": 0.5, "num_gpus": 1, "resources": {"w": 0.25}, "memory": 1e9, "accelerator_type": "T4"}
    assert _options.resources_of(options, 1) == {"CPU": 5_000, "GPU": 10_000, "w": 2_500, "memory": 10**13, "accelerator_type:T4": 10}


def test_actor_demands() -> None:
    from raygo.actor import _demand

    assert _demand({}) == ({}, {"CPU": 10_000})
    assert _demand({"num_cpus": 1}) == ({"CPU": 10_000}, {"CPU": 10_000})
    assert _demand({"num_cpus": 0}) == ({}, {})
    assert _demand({"resources": {"w": 1}}) == ({"CPU": 10_000, "w": 10_000},) * 2
    assert _demand({"memory": 100}) == ({"memory": 1_000_000}, {"memory": 1_000_000, "CPU": 10_000})


def test_strategies() -> None:
    from raygo.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy

    def made(strategy: Any) -> dict[str, Any]:
        return _options.strategy_of({"scheduling_strategy": strategy}, {"CPU": 10_000}, "f")

    assert made(None) == {}
    assert made("SPREAD") == {"type": "spread"}
    assert made(NodeAffinitySchedulingStrategy("ab" * 28, soft=True)) == {"type": "node", "node": "ab" * 28, "soft": True}
    labels = made(NodeLabelSchedulingStrategy(hard={"zone": In("a", "b")}))
    assert labels["hard"] == {"zone": {"op": "in", "values": ["a", "b"]}}


def test_placement_groups() -> None:
    class Group:
        bundle_specs = [{"CPU": 1.0}, {"CPU": 2.0, "w": 1.0}]
        id = type("Id", (), {"_number": 77})()

    class Strategy:
        placement_group = Group()
        placement_group_bundle_index = 1
        placement_group_capture_child_tasks = True

    def made(demand: dict[str, int]) -> dict[str, Any]:
        return _options.strategy_of({"scheduling_strategy": Strategy()}, demand, "f")

    assert made({"CPU": 20_000}) == {"type": "pg", "pg": 77, "bundle": 1, "capture": True}
    with pytest.raises(ValueError, match="cannot fit into any bundles"):
        made({"CPU": 30_000})
    Strategy.placement_group_bundle_index = 2
    with pytest.raises(ValueError, match="bundle index 2 is invalid"):
        made({})


def test_runtime_env_is_checked_and_canonical(tmp_path: Any) -> None:
    from raygo.runtime_env import RuntimeEnv, RuntimeEnvConfig, canonical_json

    assert canonical_json(None) == canonical_json({}) == ""
    a = canonical_json({"env_vars": {"B": "2", "A": "1"}, "working_dir": str(tmp_path)})
    b = canonical_json(RuntimeEnv(working_dir=str(tmp_path), env_vars={"A": "1", "B": "2"}))
    assert a == b and '"A":"1"' in a
    merged = canonical_json({"env_vars": {"B": "3"}}, parent='{"env_vars":{"A":"1","B":"2"},"working_dir":"/w"}')
    assert merged == '{"env_vars":{"A":"1","B":"3"},"working_dir":"/w"}'
    with pytest.raises(TypeError, match="env_vars"):
        canonical_json({"env_vars": {"A": 1}})
    with pytest.raises(ValueError, match="does not exist"):
        canonical_json({"working_dir": str(tmp_path / "absent")})
    with pytest.raises(ValueError, match="conda.*cannot build"):
        canonical_json({"conda": "env"})
    with pytest.raises(ValueError, match="setup_timeout_seconds"):
        RuntimeEnvConfig(setup_timeout_seconds=0)
    assert RuntimeEnv(pip=["numpy"]).pip_config() == {"packages": ["numpy"]}
    with pytest.raises(ValueError, match="conda"):
        raygo.remote(f).options(runtime_env={"conda": "env"}).remote()


def test_init_refuses() -> None:
    for arguments, error in (
        ({"num_cpus": "2"}, TypeError),
        ({"num_cpus": -1}, ValueError),
        ({"namespace": ""}, ValueError),
        ({"namespace": 1}, TypeError),
        ({"resources": {"CPU": 1}}, ValueError),
        ({"no_such_argument": 1}, RuntimeError),
        ({"address": "ray://host:10001"}, ValueError),
        ({"address": "10.0.0.1:6379"}, ConnectionError),
        ({"address": "unix:/nonexistent/socket", "num_cpus": 1}, ValueError),
    ):
        with pytest.raises(error):
            raygo.init(**arguments)
    assert not raygo.is_initialized()
