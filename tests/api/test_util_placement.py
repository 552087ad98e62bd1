"""Placement groups and scheduling strategies."""
import time

import pytest

import raygo
from raygo.exceptions import ActorDiedError, TaskPlacementGroupRemoved, WorkerCrashedError
from raygo.util import placement_group, placement_group_table, remove_placement_group
from raygo.util.placement_group import PlacementGroup, check_placement_group_index, get_placement_group
from raygo.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)


@pytest.fixture(scope="module", autouse=True)
def session():
    raygo.shutdown()
    raygo.init(num_cpus=4, resources={"widget": 2}, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    raygo.shutdown()


def free(name):
    return raygo.available_resources().get(name, 0)


def until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_what_runs_in_a_removed_group_dies(tmp_path):
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    where = PlacementGroupSchedulingStrategy(group)

    @raygo.remote(num_cpus=1)
    def stays(path):
        path.touch()
        time.sleep(60)

    actor = raygo.remote(num_cpus=1)(type("Inside", (), {})).options(scheduling_strategy=where).remote()
    running = stays.options(scheduling_strategy=where).remote(tmp_path / "runs")
    queued = stays.options(scheduling_strategy=where).remote(tmp_path / "never")
    raygo.get(actor.__ray_ready__.remote())
    until((tmp_path / "runs").exists)
    remove_placement_group(group)
    for ref, kind in ((actor.__ray_ready__.remote(), ActorDiedError), (running, WorkerCrashedError), (queued, TaskPlacementGroupRemoved)):
        with pytest.raises(kind, match="placement group"):
            raygo.get(ref, timeout=20)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_reserve_use_and_give_back(strategy):
    group = placement_group([{"CPU": 1}, {"CPU": 1, "widget": 1}], strategy=strategy)
    assert raygo.get(group.ready(), timeout=20) == group and group.wait(10)
    assert group.bundle_count == 2 and group.bundle_specs == [{"CPU": 1.0}, {"CPU": 1.0, "widget": 1.0}]
    assert free("CPU") <= 2 and free("widget") <= 1
    row = placement_group_table(group)
    assert row["state"] == "CREATED" and row["strategy"] == strategy and row["bundles"][1]["widget"] == 1
    assert group.id.hex() in placement_group_table()

    @raygo.remote(num_cpus=1)
    def inside():
        return raygo.util.get_current_placement_group()

    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1)
    assert raygo.get(inside.options(scheduling_strategy=where).remote(), timeout=20) == group
    assert raygo.get(inside.remote(), timeout=20) is None and raygo.util.get_current_placement_group() is None
    remove_placement_group(group)
    until(lambda: free("CPU") == 4 and free("widget") == 2)
    assert placement_group_table(group)["state"] == "REMOVED"


def test_a_group_travels_and_has_a_name():
    group = placement_group([{"CPU": 1}], name="reserved")
    assert group.wait(10)
    assert get_placement_group("reserved") == group and get_placement_group("reserved").bundle_specs == [{"CPU": 1.0}]

    @raygo.remote(num_cpus=0)
    def look(group):
        return group.id.hex(), group.bundle_count, placement_group_table(group)["state"]

    assert raygo.get(look.remote(group), timeout=20) == (group.id.hex(), 1, "CREATED")
    remove_placement_group(group)
    with pytest.raises(ValueError):
        get_placement_group("absent")


def test_what_does_not_fit_waits():
    never = placement_group([{"CPU": 1}, {"CPU": 64}])
    assert not never.wait(0.3) and placement_group_table(never)["state"] in ("PENDING", "INFEASIBLE")
    remove_placement_group(never)
    first = placement_group([{"CPU": 4}])
    assert first.wait(10)
    second = placement_group([{"CPU": 2}])
    assert not second.wait(0.2)
    remove_placement_group(first)
    assert second.wait(10)
    remove_placement_group(second)


@pytest.mark.parametrize("wrong", [{"strategy": "SIDEWAYS"}, {"bundles": []}, {"bundles": [{}]}, {"bundles": [{"CPU": 0}]},
                                   {"bundles": "CPU"}, {"bundles": [{"CPU": -1}]}, {"bundles": [{3: 1}]}, {"lifetime": "long"},
                                   {"bundles": [{"GPU": 1.5}]}])
def test_refused(wrong):
    with pytest.raises(ValueError):
        placement_group(**{"bundles": [{"CPU": 1}], **wrong})


def test_indices():
    empty = PlacementGroup.empty()
    assert empty.is_empty
    check_placement_group_index(empty, -1)
    with pytest.raises(ValueError):
        check_placement_group_index(empty, 0)
    group = PlacementGroup(raygo.PlacementGroupID.nil(), [{"CPU": 1.0}])
    group.id = raygo.PlacementGroupID.of(raygo.JobID.from_int(1))
    check_placement_group_index(group, 0)
    for index in (1, -2):
        with pytest.raises(ValueError):
            check_placement_group_index(group, index)


def test_node_affinity():
    @raygo.remote(num_cpus=0)
    def node():
        return raygo.get_runtime_context().get_node_id()

    me = raygo.nodes()[0]["NodeID"]
    assert raygo.get(node.options(scheduling_strategy=NodeAffinitySchedulingStrategy(me, soft=False)).remote(), timeout=20) == me
    assert raygo.get(node.options(scheduling_strategy=NodeAffinitySchedulingStrategy("0" * 56, soft=True)).remote(), timeout=20) == me
    with pytest.raises(raygo.exceptions.TaskUnschedulableError):
        raygo.get(node.options(scheduling_strategy=NodeAffinitySchedulingStrategy("0" * 56, soft=False)).remote(), timeout=30)
    with pytest.raises(ValueError):
        NodeAffinitySchedulingStrategy(me, soft=False, _spill_on_unavailable=True)


def test_labels():
    strategy = NodeLabelSchedulingStrategy({"zone": In("a", "b"), "old": DoesNotExist()}, soft={"disk": Exists(), "x": NotIn("y")})
    assert repr(strategy) == "NodeLabelSchedulingStrategy({'zone': In('a', 'b'), 'old': DoesNotExist()}, soft={'disk': Exists(), 'x': NotIn('y')})"
    for wrong in (lambda: NodeLabelSchedulingStrategy({}), lambda: NodeLabelSchedulingStrategy({"a": "b"}), lambda: In(1),
                  lambda: NodeLabelSchedulingStrategy({1: In("a")})):
        with pytest.raises(ValueError):
            wrong()
