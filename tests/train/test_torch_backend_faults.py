"""The backend `raygo` when something goes wrong, and what it does beside the computation."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch_ranks import run, start

import raygo
from raygo.train import RunConfig, ScalingConfig
from raygo.train.torch import TorchConfig, TorchTrainer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(300)


def collect(references):
    """What each rank returned, or its exception."""
    out = []
    for reference in references:
        try:
            out.append(raygo.get(reference, timeout=200))
        except Exception as error:
            out.append(error)
    return out


def test_a_rank_that_is_killed():
    def ops(folder):
        import torch.distributed as dist

        from raygo.util.collective import CollectiveError

        rank, tensor = dist.get_rank(), torch.ones(100_000)
        with open(os.path.join(folder, str(rank)), "w") as file:
            file.write(str(os.getpid()))
        dist.all_reduce(tensor)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        said = []
        work = dist.all_reduce(tensor, async_op=True)
        for call in (work.wait, lambda: dist.all_reduce(tensor), dist.barrier):
            try:
                call()
            except CollectiveError as error:
                said.append((error.rank, str(error)))
        return said, work.is_completed(), type(work.exception()).__name__

    with tempfile.TemporaryDirectory() as folder:
        answers = collect(start(ops, folder, folder=folder, world=3))
        with open(os.path.join(folder, "1")) as file:
            pid = file.read()
    assert isinstance(answers[1], raygo.exceptions.WorkerCrashedError)
    for said, completed, kind in (answers[0], answers[2]):
        assert len(said) == 3 and completed and kind == "GroupError"
        assert all(rank == 1 and "ank 1" in text and pid in text for rank, text in said), said


def test_a_rank_that_is_killed_in_the_backward_pass():
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        rank = dist.get_rank()
        model = DistributedDataParallel(torch.nn.Linear(300, 300))
        for step in range(3):
            if step == 2 and rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(2, 300)).sum().backward()

    with tempfile.TemporaryDirectory() as folder:
        died, told = collect(start(ops, folder=folder))
    assert isinstance(died, raygo.exceptions.WorkerCrashedError)
    assert isinstance(told, RuntimeError) and "GroupError" in str(told) and "ank 0" in str(told)


def test_a_rank_that_stands_still():
    def ops():
        import torch.distributed as dist

        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        if dist.get_rank() == 1:
            pid = os.getpid()
            if os.fork() == 0:          # wakes it again, when the other has given up
                time.sleep(6)
                os.kill(pid, signal.SIGCONT)
                os._exit(0)
            os.kill(pid, signal.SIGSTOP)
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            return str(error)

    with tempfile.TemporaryDirectory() as folder:
        told, _ = collect(start(ops, folder=folder, timeout=2))
    assert "rank 1" in told and "2 s" in told


def test_calls_that_do_not_fit():
    def ops():
        import torch.distributed as dist

        try:
            if dist.get_rank():
                dist.all_reduce(torch.ones(10))
            else:
                dist.broadcast(torch.ones(10), 0)
            dist.barrier()      # the root of a small broadcast has nothing to wait for, and is told now
        except RuntimeError as error:
            return str(error)

    for told in run(ops):
        assert "allreduce" in told and "broadcast" in told


@pytest.mark.parametrize("every", [False, True])
def test_a_barrier_that_says_who_is_missing(every):
    def ops():
        import datetime

        import torch.distributed as dist

        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        dist.monitored_barrier()
        said = None
        if rank not in (1, 3):
            try:
                dist.monitored_barrier(timeout=datetime.timedelta(seconds=2), wait_all_ranks=every)
            except RuntimeError as error:
                said = str(error)
            store.set(f"told {rank}", "")
        else:
            store.wait(["told 0"], datetime.timedelta(seconds=60))
        tensor = torch.ones(1)
        dist.all_reduce(tensor)             # the group goes on
        return said, tensor.item()

    answers = run(ops, world=4)
    assert [total for _, total in answers] == [4] * 4
    first = answers[0][0]
    assert ("ranks 1, 3" if every else "rank 1") in first and "2 s" in first
    assert answers[1][0] is None and answers[3][0] is None
    if every:
        assert answers[2][0] == first


def test_tensors_that_it_cannot_take():
    def ops():
        import torch.distributed as dist

        said = []
        for call in (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)),
                     lambda: dist.all_reduce(torch.ones(2).to_sparse()),
                     lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)),
                     lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3))):
            try:
                said.append(call())
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        moved = (torch.ones(2) * (dist.get_rank() + 1)).to(torch.float8_e5m2)
        dist.broadcast(moved, 1)            # moved it can be
        return said, moved.float().tolist()

    for said, moved in run(ops):
        assert moved == [2, 2]
        for text, wanted in zip(said, ("float8_e5m2", "sparse", "2 times as many", "cannot be parted evenly"), strict=True):
            assert wanted in text, said


def test_gradients_are_exchanged_during_the_backward_pass():
    """The first layer's backward waits until the last layer's gradients have been reduced, which comes about only if that goes on beside it.

    The trace shows the same: the operation has ended before the waiting has.
    """
    def ops():
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.nn.parallel import DistributedDataParallel

        from raygo.util.collective.torch_backend import trace

        reduced, events = threading.Event(), []

        class Wait(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                events.append("first layer begins")
                # Torch parts the gradients into these buckets when it has seen one pass.
                assert not events[0] or reduced.wait(60), "nothing was reduced while the backward pass was under way"
                events.append("first layer ends")
                return grad

        def hook(state, bucket):
            last = bucket.index() == 0
            if last:
                events.append("last layer's gradients are there")

            def done(future):
                if last:
                    events.append("last layer's gradients are reduced")
                    reduced.set()
                return future.value()

            return allreduce_hook(state, bucket).then(done)

        first, last = torch.nn.Linear(600, 600), torch.nn.Linear(600, 600)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = first, last

            def forward(self, x):
                return self.last(Wait.apply(self.first(x)))

        model = DistributedDataParallel(Model(), bucket_cap_mb=0.9)
        model.register_comm_hook(None, hook)
        for step in range(2):
            events[:] = [step]
            reduced.clear()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, trace() as operations:
                model(torch.ones(3, 600)).sum().backward()
        dist.barrier()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.export_chrome_trace(path)
            operations.add_to(path)
            with open(path) as file:
                shown = {event["name"]: event for event in reversed(json.load(file)["traceEvents"]) if event.get("ph") == "X"}
        first, waiting = shown["raygo::allreduce"], shown["WaitBackward"]
        return events, first["ts"] + first["dur"], waiting["ts"] + waiting["dur"], first["args"]["bytes"]

    for events, reduced, waited, size in run(ops):
        assert reduced < waited and size == 4 * 600 * 601
        assert events.index("last layer's gradients are there") < events.index("last layer's gradients are reduced") < events.index("first layer ends")


def test_buckets_lie_in_the_groups_memory():
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        from raygo.util.collective.torch_backend import empty

        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        seen = []
        model = DistributedDataParallel(torch.nn.Linear(400, 400), gradient_as_bucket_view=True)
        for step in range(3):
            model.zero_grad(set_to_none=False)
            (model(torch.ones(1, 400)).sum() * (dist.get_rank() + step)).backward()
            seen.append((model.module.weight.grad.untyped_storage().data_ptr() in backend._adopted, model.module.weight.grad[3, 3].item()))
        # One that the program holds is left where it is.
        gradient = torch.ones(200_000)
        before = gradient.data_ptr()
        dist.all_reduce(gradient)
        ours = empty(3, 5, dtype=torch.float64).fill_(dist.get_rank() + 1)
        dist.all_reduce(ours)
        return seen, gradient.data_ptr() == before, ours.tolist()

    for seen, stayed, ours in run(ops):
        assert [value for _, value in seen] == [0.5, 1.5, 2.5] and seen[-1][0]
        assert stayed and ours == [[3.0] * 5] * 3


def test_training_names_the_cause(tmp_path):
    def loop():
        import torch.distributed as dist

        model = raygo.train.torch.prepare_model(torch.nn.Linear(10, 10))
        for step in range(5):
            if step == 2 and dist.get_rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(1, 10)).sum().backward()

    trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=str(tmp_path)))
    with pytest.raises(raygo.train.TrainingFailedError, match=r"The worker of rank 0 \(pid \d+\) (died|failed)"):
        trainer.fit()


@pytest.mark.parametrize(("backend", "name", "kind"), [(None, "gloo", "raygo"), ("raygo", "raygo", "raygo"), ("gloo", "gloo", "gloo")])
def test_the_backend_of_a_trainer(tmp_path, backend, name, kind):
    """By default it is raygo's and answers to gloo's name, which programs written for Ray expect."""
    def loop():
        import torch.distributed as dist

        world, other = dist.group.WORLD, dist.new_group([0, 1])
        raygo.train.report({"name": dist.get_backend(), "kinds": [g._get_backend(torch.device("cpu")).name() for g in (world, other)],
                            "limit": world._get_backend(torch.device("cpu")).options._timeout.total_seconds()})

    result = TorchTrainer(loop, torch_config=TorchConfig(backend=backend, timeout_s=77), scaling_config=ScalingConfig(num_workers=2),
                          run_config=RunConfig(storage_path=str(tmp_path))).fit()
    assert result.metrics["name"] == name and result.metrics["kinds"] == [kind, kind] and result.metrics["limit"] == 77


def test_torchrun(tmp_path):
    """Torch finds the backend by the entry point that raygo is installed with; here the entry point alone is installed."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import torch
        import torch.distributed as dist

        dist.init_process_group("raygo")
        tensor = torch.full((1000,), dist.get_rank() + 1.0)
        dist.all_reduce(tensor)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        dist.barrier()
        if dist.get_rank() == 0:
            print(dist.get_backend(), tensor.sum().item(), flush=True)
        dist.destroy_process_group()
    """))
    meta = tmp_path / "path" / "raygo_entry-1.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: raygo-entry\nVersion: 1\n")
    (meta / "entry_points.txt").write_text("[torch.distributed.backends]\nraygo = raygo.util.collective.torch_backend:register_backend\n")
    path = os.pathsep.join([os.path.dirname(os.path.dirname(raygo.__file__)), str(tmp_path / "path")])
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone", str(script)],
                          env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "raygo 3000.0" in done.stdout


def test_a_rank_that_is_late_for_one_barrier_is_not_taken_for_the_next():
    def ops():
        import datetime

        import torch.distributed as dist

        rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
        said = None
        if rank:
            store.wait(["given up"], datetime.timedelta(seconds=60))
        try:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=60 if rank else 1))
        except RuntimeError as error:
            said = str(error)
        store.set("given up", "")
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=60))
        dist.monitored_barrier()
        return said

    for said in run(ops):
        assert "rank 1" in said and "did not come" in said


def test_a_store_that_was_used_in_vain():
    """Ranks that gave up another number of times, or left groups behind, find each other in the same store."""
    import torch.distributed as dist

    from raygo import _binding
    from raygo.util.collective._torch_store import agree

    store = dist.HashStore()

    def join(rank, size, timeout):
        try:
            return agree(store, "g", rank, size, timeout)
        except _binding.GroupError as error:
            return str(error)

    def all_ranks(size):
        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(lambda rank: join(rank, size, 60), range(size)))

    assert "rank 1 waited for rank 0" in join(1, 3, 0.2)
    assert "3 ranks, 2 did not come in time (1, 2)" in join(0, 3, 0.2)
    assert "rank 1 waited for rank 0" in join(1, 3, 0.2)
    numbers = [all_ranks(3) for _ in range(3)]
    assert all(len(set(n)) == 1 for n in numbers) and len({n[0] for n in numbers}) == 3
    assert "rank 2 waited" in join(2, 3, 0.2)
    assert "did not come in time (1, 2)" in join(0, 3, 0.2)
    again = all_ranks(3)
    assert len(set(again)) == 1 and again not in numbers


def test_coalescing_that_an_exception_ends():
    def ops():
        import torch.distributed as dist

        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        rank, tensor = dist.get_rank(), torch.ones(3)
        backend._start_coalescing()
        try:
            backend.send([tensor], rank, 0)         # to itself, which cannot be
        except ValueError:
            work = backend._end_coalescing()
        work.wait()
        ended = [work.is_completed(), work.get_future().done()]
        options = dist.AllreduceOptions()
        options.asyncOp = True
        backend._start_coalescing()                 # and nobody ends it
        backend.allreduce([tensor], options)
        backend._start_coalescing()
        backend.allreduce([tensor], options)
        backend._end_coalescing().wait()
        dist.all_reduce(tensor)
        return ended, tensor.tolist()

    assert run(ops) == [([True, True], [8.0] * 3)] * 2


def test_buckets_stay_where_torch_put_them_on_versions_not_tested():
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        from raygo.util.collective import torch_backend

        tested = dict(torch_backend._BUCKET_REFERENCES)
        torch_backend._BUCKET_REFERENCES.clear()
        try:
            group = dist.new_group(backend="raygo")
        finally:
            torch_backend._BUCKET_REFERENCES.update(tested)     # the process has other tests to run
        backend = group._get_backend(torch.device("cpu"))
        model = DistributedDataParallel(torch.nn.Linear(400, 400), gradient_as_bucket_view=True, process_group=group)
        model(torch.ones(2, 400) * (dist.get_rank() + 1)).sum().backward()
        return backend._adopting, len(backend._adopted), model.module.weight.grad[3, 3].item()

    assert run(ops) == [(False, 0, 3.0)] * 2


def test_child_processes_cannot_change_gradients():
    def ops():
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(torch.nn.Linear(400, 400), gradient_as_bucket_view=True)
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            model(torch.ones(2, 400)).sum().backward()
        gradient = model.module.weight.grad
        import torch.distributed as dist

        assert gradient.untyped_storage().data_ptr() in dist.group.WORLD._get_backend(torch.device("cpu"))._adopted
        before = gradient.clone()
        child = os.fork()
        if not child:
            gradient.numpy()[:] = 7
            os._exit(0)
        os.waitpid(child, 0)
        return bool((gradient == before).all())

    assert run(ops) == [True, True]
