"""raygo.util.collective: arrays of NumPy and torch between actors and tasks."""
import os
import signal

import numpy as np
import pytest

import raygo
from raygo.util import collective
from raygo.util.collective import ReduceOp
from raygo.util.collective.types import Backend

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("session")]


@raygo.remote(num_cpus=0)
class Member:
    """A rank; `call` runs a function with the module raygo.util.collective."""

    def join(self, world, rank, group="default", backend="gloo", timeout=60_000):
        collective.init_collective_group(world, rank, backend, group, timeout)
        return collective.get_rank(group), collective.get_collective_group_size(group)

    def call(self, function, *args):
        return function(collective, *args)

    def pid(self):
        return os.getpid()


@pytest.fixture
def members():
    """Three actors in the group `default`."""
    actors = [Member.remote() for _ in range(3)]
    assert raygo.get([a.join.remote(3, rank) for rank, a in enumerate(actors)]) == [(rank, 3) for rank in range(3)]
    yield actors
    for actor in actors:
        raygo.kill(actor)


def everywhere(actors, function, *args):
    return raygo.get([actor.call.remote(function, *args) for actor in actors])


def test_numpy(members):
    def ops(c):
        rank, size = c.get_rank(), c.get_collective_group_size()
        out = {}
        for dtype in (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.int8):
            array = np.arange(4).astype(dtype) + dtype(rank)
            c.allreduce(array)
            out[np.dtype(dtype).name] = array.tolist()
        for op in (ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVERAGE):
            array = np.array([rank + 1.0, 4.0])
            c.allreduce(array, op=op)
            out[op.name] = array.tolist()
        matrix = np.zeros((4, 6))
        columns = matrix[:, ::2]
        columns += rank
        c.allreduce(columns)
        out["columns"] = matrix.tolist()
        gathered = [np.zeros(2) for _ in range(size)]
        c.allgather(gathered, np.array([rank, 7.0]))
        out["allgather"] = [a.tolist() for a in gathered]
        piece = np.zeros(2, dtype=np.int64)
        c.reducescatter(piece, [np.array([r, rank]) for r in range(size)])
        out["reducescatter"] = piece.tolist()
        array = np.full(3, rank)
        c.broadcast(array, 2)
        out["broadcast"] = array.tolist()
        array = np.full(3, rank + 1.0)
        c.reduce(array, 1)
        out["reduce"] = array.tolist()
        c.barrier()
        if rank == 0:
            c.send(np.arange(5.0), 2)
        elif rank == 2:
            array = np.zeros(5)
            c.recv(array, 0)
            out["recv"] = array.tolist()
        return out

    for rank, out in enumerate(everywhere(members, ops)):
        for name in ("float32", "float64", "float16", "int32", "int64", "uint8", "int8"):
            assert out[name] == [3, 6, 9, 12], name
        assert out["PRODUCT"] == [6, 64] and out["MIN"] == [1, 4] and out["MAX"] == [3, 4] and out["AVERAGE"] == [2, 4]
        assert out["columns"] == [[3, 0, 3, 0, 3, 0]] * 4
        assert out["allgather"] == [[r, 7] for r in range(3)] and out["reducescatter"] == [3 * rank, 3]
        assert out["broadcast"] == [2, 2, 2]
        assert out["reduce"] == ([6.0] * 3 if rank == 1 else [rank + 1.0] * 3)
        assert out.get("recv") == ([0, 1, 2, 3, 4] if rank == 2 else None)


def test_torch(members):
    pytest.importorskip("torch")

    def ops(c):
        import torch

        rank, out = c.get_rank(), {}
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
            tensor = torch.tensor([rank == 0, 1]).to(dtype)
            c.allreduce(tensor)
            out[str(dtype)] = tensor.tolist()
        gathered = [torch.zeros(2, 2) for _ in range(3)]
        c.allgather(gathered, torch.full((2, 2), float(rank)))
        out["allgather"] = [t[0, 0].item() for t in gathered]
        turned = torch.zeros(2, 3).t()
        c.broadcast(torch.arange(6.0).reshape(3, 2) if rank == 1 else turned, 1)
        out["broadcast"] = turned.tolist()
        tensor = torch.full((2,), rank + 1.0, requires_grad=True)
        c.allreduce(tensor)
        out["leaf"] = tensor.tolist()
        c.allreduce_multigpu([tensor])
        out["again"] = tensor.tolist()
        return out

    for rank, out in enumerate(everywhere(members, ops)):
        assert out["torch.bool"] == [True, True] and all(out[f"torch.{name}"] == [1, 3] for name in ("float32", "bfloat16", "float16", "int64"))
        assert out["allgather"] == [0, 1, 2] and (rank == 1 or out["broadcast"] == [[0, 1], [2, 3], [4, 5]])
        assert out["leaf"] == [6, 6] and out["again"] == [18, 18]


def test_a_group_that_the_driver_declares():
    actors = [Member.remote() for _ in range(2)]
    collective.create_collective_group(actors, 2, [1, 0], "gloo", "declared")

    def total(c):
        array = np.ones(2)
        before = c.is_group_initialized("declared")
        c.allreduce(array, "declared")
        return before, c.get_rank("declared"), array.tolist(), c.is_group_initialized("declared")

    assert everywhere(actors, total) == [(False, 1, [2, 2], True), (False, 0, [2, 2], True)]
    with pytest.raises(RuntimeError, match="declared already"):
        collective.create_collective_group(actors, 2, [0, 1], "gloo", "declared")
    everywhere(actors, lambda c: c.destroy_collective_group("declared"))
    collective.create_collective_group(actors, 2, [0, 1], "gloo", "declared")
    assert [rank for _, rank, _, _ in everywhere(actors, total)] == [0, 1]
    stranger = Member.remote()
    with pytest.raises(RuntimeError, match="not one of its members"):
        raygo.get(stranger.call.remote(total))
    collective.destroy_collective_group("declared")


def test_threads_of_one_actor_join_a_declared_group_once():
    def total(c):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            handles = list(pool.map(lambda _: c.get_group_handle("threads"), range(8)))
        array = np.ones(4)
        c.allreduce(array, "threads")
        return len(set(map(id, handles))), array.tolist()

    actors = [Member.remote() for _ in range(2)]
    collective.create_collective_group(actors, 2, [0, 1], backend="gloo", group_name="threads", gloo_timeout=20_000)
    assert everywhere(actors, total) == [(1, [2.0] * 4)] * 2
    for actor in actors:
        raygo.kill(actor)


def test_tasks_and_several_groups():
    @raygo.remote(num_cpus=1)
    def task(rank):
        collective.init_collective_group(2, rank, "raygo", "tasks")
        collective.init_collective_group(1, 0, backend=Backend.GLOO, group_name=f"alone {rank}")
        array, own = np.array([rank + 1]), np.array([rank + 1])
        collective.allreduce(array, "tasks")
        collective.allreduce(own, f"alone {rank}")
        for name in ("tasks", f"alone {rank}"):
            collective.destroy_collective_group(name)
        return array.item(), own.item(), collective.is_group_initialized("tasks")

    assert raygo.get([task.remote(rank) for rank in range(2)]) == [(3, 1, False), (3, 2, False)]


def test_the_same_name_again(members):
    for _ in range(3):
        everywhere(members, lambda c: c.destroy_collective_group())
        raygo.get([a.join.remote(3, rank) for rank, a in enumerate(members)])
    assert everywhere(members, lambda c: c.get_rank()) == [0, 1, 2]


def test_what_cannot_be(members):
    def wrong(c):
        import numpy

        said = []
        frozen = numpy.zeros(2)
        frozen.flags.writeable = False
        for call in (lambda: c.init_collective_group(3, 0, "gloo"),
                     lambda: c.init_collective_group(2, 2, "gloo", "other"),
                     lambda: c.init_collective_group(1, 0, "gloo", ""),
                     lambda: c.init_collective_group(1, 0, "carrier pigeon", "other"),
                     lambda: c.allreduce(numpy.zeros(1), "nobody's"),
                     lambda: c.allreduce([1.0]),
                     lambda: c.allreduce(frozen),
                     lambda: c.allreduce(numpy.array(["a"])),
                     lambda: c.broadcast(numpy.zeros(1), 3),
                     lambda: c.send(numpy.zeros(1), c.get_rank()),
                     lambda: c.allgather([numpy.zeros(1)], numpy.zeros(1))):
            try:
                said.append((None, call()))
            except Exception as error:
                said.append((type(error).__name__, str(error)))
        return said, c.get_rank("other"), c.get_collective_group_size("other"), c.is_backend_available("gloo"), c.is_backend_available("carrier pigeon")

    for said, rank, size, gloo, pigeon in everywhere(members, wrong):
        kinds = [kind for kind, _ in said]
        assert kinds == ["RuntimeError", "ValueError", "ValueError", "ValueError", "RuntimeError", "RuntimeError", "ValueError", "TypeError", "ValueError",
                         "RuntimeError", "RuntimeError"], said
        assert "twice" in said[0][1] and "nobody's" in said[4][1] and "read-only" in said[6][1] and "3 ranks" in said[10][1]
        assert (rank, size, gloo, pigeon) == (-1, -1, True, False)
    with pytest.raises(RuntimeError, match="actors and tasks"):
        collective.allreduce(np.zeros(1))
    with pytest.raises(RuntimeError, match="permutation"):
        collective.create_collective_group(members, 3, [0, 1, 1], "gloo", "other")


def test_nccl_where_there_is_no_gpu():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")

    def ask(c):
        try:
            c.init_collective_group(1, 0, "nccl", "gpus")
        except RuntimeError as error:
            return c.nccl_available(), c.is_group_initialized("gpus"), str(error)

    available, joined, told = raygo.get(Member.remote().call.remote(ask))
    assert not available and not joined and "no GPU" in told and "gpus" in told


def test_a_member_that_does_not_come():
    lonely = Member.remote()
    with pytest.raises(Exception, match="rank|came|nobody"):
        raygo.get(lonely.join.remote(2, 0, "half", "gloo", 1500))
    # What was said in vain does not disturb the next attempt.
    both = [lonely, Member.remote()]
    assert raygo.get([a.join.remote(2, rank, "half") for rank, a in enumerate(both)]) == [(0, 2), (1, 2)]


def test_a_member_that_dies(members):
    def forever(c):
        try:
            while True:
                c.allreduce(np.zeros(10))
        except c.CollectiveError as error:
            return error.rank, str(error)

    def die(c):
        os.kill(os.getpid(), signal.SIGKILL)

    pid = raygo.get(members[1].pid.remote())
    waiting = [members[rank].call.remote(forever) for rank in (0, 2)]
    members[1].call.remote(die)
    for rank, text in raygo.get(waiting, timeout=60):
        assert rank == 1 and "rank 1" in text and str(pid) in text


def test_lists_of_another_type(members):
    def wrong(c):
        said = []
        calls = [
            lambda: c.allgather([np.zeros(4, np.float32) for _ in range(3)], np.zeros(4)),
            lambda: c.reducescatter(np.zeros(4), [np.zeros(4, np.float32) for _ in range(3)]),
            lambda: c.allreduce(np.zeros(4, ">f4")),
        ]
        for call in calls:
            try:
                call()
                said.append("nothing")
            except TypeError as error:
                said.append(str(error))
        return said

    for said in everywhere(members, wrong):
        assert "array 0 of the list is of float32 and the single one of float64" in said[0]
        assert "array 0 of the list is of float32 and the single one of float64" in said[1]
        assert "other order" in said[2]


def test_what_is_kept_of_a_meeting(members):
    def keep(c):
        from raygo.util.collective._meeting import Meeting

        with Meeting("kept", 1, 60) as meeting:
            meeting.set("kept/net/0", b"here")
            meeting.keep(["kept/net/0"])
            meeting.end()
        return meeting.get("kept/net/0", 1)

    assert raygo.get(members[0].call.remote(keep)) == b"here"
