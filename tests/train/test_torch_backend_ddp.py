"""What torch builds on its process groups, trained on the backend `raygo`: the same weights as with gloo, in every mode."""
import os

import pytest
import torch_ranks
from torch_ranks import run

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(300)

STEPS = 4


def network():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(8, 600), torch.nn.ReLU(), torch.nn.Linear(600, 600), torch.nn.Tanh(), torch.nn.Linear(600, 3))


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 3, generator=generator)


def train(model, optimizer, rank, steps=STEPS, skip=()):
    for step in range(steps):
        x, y = batch(rank, step)
        with model.no_sync() if step in skip else torch.enable_grad():
            torch.nn.functional.mse_loss(model(x), y).backward()
        if step not in skip:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


def alone(world=2, steps=STEPS):
    """What one process has after the same steps on the batches of all ranks."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        for rank in range(world):
            x, y = batch(rank, step)
            (torch.nn.functional.mse_loss(model(x), y) / world).backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(model.parameters())


def close(ours, theirs, tolerance=1e-5):
    return all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(ours, theirs, strict=True))


MODES = {
    "plain": {},
    "static graph": {"static_graph": True},
    "unused parameters": {"find_unused_parameters": True},
    "views of buckets": {"gradient_as_bucket_view": True},
    "small buckets": {"bucket_cap_mb": 0.3},
    "small buckets, views": {"bucket_cap_mb": 0.3, "gradient_as_bucket_view": True, "static_graph": True},
}


@pytest.mark.parametrize("world", [2, 3])
def test_every_mode_of_ddp(world):
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        rank, wrong = dist.get_rank(), []
        expected = alone(world)
        for name, options in MODES.items():
            model = DistributedDataParallel(network(), **options)
            weights = train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)
            if not close(weights, expected):
                wrong.append(name)
        return wrong

    assert run(ops, world=world) == [[]] * world


def test_unused_parameters_that_differ_between_ranks():
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        class Branches(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.parts = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

            def forward(self, x, which):
                return self.parts[which](x)

        rank = dist.get_rank()
        model = DistributedDataParallel(Branches(), find_unused_parameters=True)
        model(torch.ones(2, 4), rank).sum().backward()
        return [None if p.grad is None else p.grad.sum().item() for p in model.parameters()]

    for grads in run(ops):
        assert grads == [16.0, 4.0, 16.0, 4.0, None, None]


def test_accumulating_without_exchange():
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        rank = dist.get_rank()
        model = DistributedDataParallel(network())
        weights = train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, skip=(0, 2))
        return float(sum(w.double().sum() for w in weights)), close(weights, alone())

    (first, like_every_step), (second, _) = run(ops)
    assert first == second and not like_every_step


def test_communication_hooks():
    def ops():
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        from torch.nn.parallel import DistributedDataParallel

        rank, out, expected = dist.get_rank(), {}, alone()

        def with_hook(state, hook, **options):
            model = DistributedDataParallel(network(), **options)
            model.register_comm_hook(state, hook)
            return train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank)

        out["allreduce"] = close(with_hook(None, default_hooks.allreduce_hook), expected)
        out["fp16"] = close(with_hook(None, default_hooks.fp16_compress_hook, bucket_cap_mb=0.3), expected, 1e-2)
        out["bf16"] = close(with_hook(None, default_hooks.bf16_compress_hook, gradient_as_bucket_view=True), expected, 5e-2)
        out["wrapped"] = close(with_hook(None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)), expected, 1e-2)
        return out

    for out in run(ops):
        assert out == dict.fromkeys(("allreduce", "fp16", "bf16", "wrapped"), True)


def test_an_optimizer_in_pieces():
    def ops():
        import torch.distributed as dist
        from torch.distributed.optim import ZeroRedundancyOptimizer
        from torch.nn.parallel import DistributedDataParallel

        rank = dist.get_rank()
        model = DistributedDataParallel(network())
        whole = train(model, torch.optim.Adam(model.parameters(), lr=0.01), rank)
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
        pieces = train(model, optimizer, rank)
        optimizer.consolidate_state_dict(to=0)
        return close(whole, pieces), len(optimizer.state_dict()["state"]) if rank == 0 else 6

    assert run(ops) == [(True, 6)] * 2


def test_a_sharded_model():
    def ops():
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        rank, expected, out = dist.get_rank(), alone(), []
        for policy in (None, MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)):
            model = network()
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            options = {"mesh": mesh} if policy is None else {"mesh": mesh, "mp_policy": policy}
            for layer in (model[0], model[2], model[4]):
                fully_shard(layer, **options)
            fully_shard(model, **options)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(STEPS):
                x, y = batch(rank, step)
                torch.nn.functional.mse_loss(model(x).float(), y).backward()
                optimizer.step()
                optimizer.zero_grad()
            out.append(close([p.full_tensor() for p in model.parameters()], expected, 1e-5 if policy is None else 5e-2))
        return out

    assert run(ops) == [[True, True]] * 2


def test_a_model_sharded_in_the_old_way():
    def ops():
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel

        rank = dist.get_rank()
        model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            x, y = batch(rank, step)
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        with FullyShardedDataParallel.summon_full_params(model):
            return close([p.detach().clone() for p in model.parameters()], alone())

    assert run(ops) == [True, True]


def test_uneven_inputs():
    def ops():
        import torch.distributed as dist
        from torch.distributed.algorithms.join import Join
        from torch.nn.parallel import DistributedDataParallel

        rank = dist.get_rank()
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        start = model.module.weight.detach().clone()
        steps = 0
        with Join([model]):
            for _ in range(2 + 3 * rank):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
        return steps, (start - model.module.weight.detach()).tolist()

    (short, one), (long, other) = run(ops)
    # Three of the five steps are rank 1's alone, and still divided by two.
    assert (short, long) == (2, 5) and one == other and other[0] == pytest.approx([0.35, 0.35])


def test_synchronized_batch_norm():
    def ops():
        import torch.distributed as dist

        rank = dist.get_rank()
        layer = torch.nn.SyncBatchNorm(2)
        x = torch.full((3, 2), float(rank))
        x.requires_grad_()
        try:
            layer(x)
        except (ValueError, RuntimeError) as error:     # torch runs it on accelerators only
            return str(error)
        return layer.running_mean.tolist()

    for answer in run(ops):
        assert answer == pytest.approx([0.05, 0.05]) if isinstance(answer, list) else "GPU" in answer or "device" in answer


def test_a_compiled_model():
    def ops():
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        model = torch.compile(DistributedDataParallel(network()), backend="aot_eager")
        weights = train(model, torch.optim.SGD(model.parameters(), lr=0.1), dist.get_rank(), steps=2)
        return close(weights, alone(steps=2))

    assert run(ops) == [True, True]


def test_loader_processes_beside_a_group():
    def ops():
        import torch.distributed as dist
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.arange(12.0)), batch_size=3, num_workers=2, persistent_workers=True)
        sums = []
        for _ in range(2):
            total = torch.zeros(300_000)
            works = []
            for (numbers,) in loader:
                works.append(dist.all_reduce(torch.ones(300_000), async_op=True))
                total += numbers.sum()
            for work in works:
                work.wait()
            dist.all_reduce(total)
            sums.append(total[0].item())
        return sums, os.getpid()

    for sums, _ in run(ops):
        assert sums == [132, 132]


@pytest.mark.skipif(torch_ranks.BACKEND != "raygo", reason="what raygo adds")
def test_gradients_are_the_same_bits_on_all_ranks():
    def ops():
        import torch.distributed as dist

        torch.manual_seed(dist.get_rank())
        tensors = [torch.randn(n) for n in (7, 5000, 700_001)]
        for tensor in tensors:
            dist.all_reduce(tensor)
        everything = [None] * dist.get_world_size()
        dist.all_gather_object(everything, [t.numpy().tobytes() for t in tensors])
        return all(e == everything[0] for e in everything)

    assert run(ops, world=3) == [True] * 3
