"""TorchTrainer: the process group, DDP, data loaders."""
import os
import tempfile

import pytest

import raygo.train
import raygo.train.torch
from raygo.train import Checkpoint, RunConfig, ScalingConfig
from raygo.train.torch import TorchCheckpoint, TorchConfig, TorchTrainer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(300)  # the first worker imports torch, which takes a while on a busy machine


def fit(loop, tmp_path, workers=2, **kwargs):
    return TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=workers), run_config=RunConfig(storage_path=str(tmp_path)), **kwargs).fit()


def test_ddp_agrees_on_weights_and_gradients(tmp_path):
    def loop():
        import torch.distributed as dist

        rank, world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(rank)
        model = raygo.train.torch.prepare_model(torch.nn.Linear(4, 2))
        model(torch.full((5, 4), float(rank + 1))).sum().backward()
        everything = [None] * world
        dist.all_gather_object(everything, (model.module.weight.tolist(), model.module.weight.grad.tolist()))
        raygo.train.report({"same": all(e == everything[0] for e in everything), "grad": everything[0][1][0][0],
                            "backend": dist.get_backend(), "kind": type(model).__name__, "port": os.environ["MASTER_PORT"]},
                           checkpoint=TorchCheckpoint.from_model(model))

    result = fit(loop, tmp_path, workers=3, torch_config=TorchConfig(backend="gloo"))
    metrics = result.metrics
    assert isinstance(TorchCheckpoint(result.checkpoint.path).get_model(), torch.nn.Linear)
    assert metrics["same"] and metrics["grad"] == pytest.approx(10) and metrics["backend"] == "gloo"
    assert metrics["kind"] == "DistributedDataParallel" and int(metrics["port"]) > 0


def test_each_worker_has_its_part_of_the_data(tmp_path):
    def loop():
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(20))
        shuffled = raygo.train.torch.prepare_data_loader(DataLoader(data, batch_size=4, shuffle=True))
        ordered = raygo.train.torch.prepare_data_loader(DataLoader(data, batch_size=4))
        plain = raygo.train.torch.prepare_data_loader(DataLoader(data, batch_size=4), add_dist_sampler=False)
        assert isinstance(shuffled.sampler, DistributedSampler) and shuffled.sampler.shuffle and not ordered.sampler.shuffle

        def seen(loader):
            return [int(v) for (batch,) in loader for v in batch]

        orders = []
        for epoch in range(2):
            shuffled.sampler.set_epoch(epoch)
            orders.append(seen(shuffled))
        out = [None, None]
        dist.all_gather_object(out, (orders, seen(ordered), seen(plain)))
        raygo.train.report({"out": out})

    (orders_a, ordered_a, plain_a), (orders_b, ordered_b, plain_b) = fit(loop, tmp_path).metrics["out"]
    assert ordered_a == list(range(0, 20, 2)) and ordered_b == list(range(1, 20, 2))
    assert plain_a == plain_b == list(range(20))
    assert all(sorted(a + b) == list(range(20)) for a, b in zip(orders_a, orders_b, strict=True)) and orders_a[0] != orders_a[1]


def test_a_loader_with_processes_and_a_checkpoint(tmp_path):
    def loop():
        from torch.utils.data import DataLoader, TensorDataset

        loader = raygo.train.torch.prepare_data_loader(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, num_workers=2))
        model = torch.nn.Linear(1, 1)
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), os.path.join(folder, TorchCheckpoint.MODEL_FILENAME))
            with pytest.raises(ValueError, match="'deep/0/w' is a torch.Tensor"):
                raygo.train.report({"deep": [{"w": torch.ones(1)}]})
            raygo.train.report({"sum": sum(float(batch.sum()) for (batch,) in loader)}, checkpoint=Checkpoint.from_directory(folder))

    result = fit(loop, tmp_path, workers=1)
    assert result.metrics["sum"] == 28
    assert TorchCheckpoint(result.checkpoint.path).get_model(torch.nn.Linear(1, 1)).weight.shape == (1, 1)


def test_the_cause_and_not_what_follows_from_it(tmp_path):
    def loop():
        import torch.distributed as dist

        if dist.get_rank() == 1:
            raise KeyError("the cause")
        dist.all_reduce(torch.zeros(1))

    with pytest.raises(raygo.train.TrainingFailedError, match="rank 1 .*the cause"):
        fit(loop, tmp_path)


def test_a_backend_that_torch_does_not_have(tmp_path):
    with pytest.raises(ValueError, match="backend is 3"):
        TorchConfig(backend=3)
    with pytest.raises(raygo.train.ControllerError, match=r"made a group: ValueError: TorchConfig\(backend='cpu:nope'\): torch.distributed knows no nope"):
        fit(lambda: None, tmp_path, workers=1, torch_config=TorchConfig(backend="cpu:nope"))


def test_a_checkpoint_keeps_what_prepares_the_inputs():
    checkpoint = TorchCheckpoint.from_model(torch.nn.Linear(1, 1), preprocessor={"mean": 3})
    again = TorchCheckpoint(checkpoint.path)
    assert again.get_preprocessor() == {"mean": 3}
    again.set_preprocessor(None)
    assert TorchCheckpoint(checkpoint.path).get_preprocessor() is None
    assert TorchCheckpoint.from_state_dict({}).get_preprocessor() is None
