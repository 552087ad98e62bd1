"""What raygo.train.torch does to models and loaders, and libraries on torch.distributed: Accelerate, Lightning, Transformers."""
import os

import pytest

import raygo.data
import raygo.train
import raygo.train.torch
from raygo.train import RunConfig, ScalingConfig
from raygo.train.torch import TorchTrainer

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(400)  # Lightning and Transformers take many seconds to import on a busy machine


def fit(loop, tmp_path, workers=2, **kwargs):
    return TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=workers), run_config=RunConfig(storage_path=str(tmp_path)), **kwargs).fit()


def test_loaders_keep_what_they_were_made_with(tmp_path):
    def loop():
        from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset

        prepare = raygo.train.torch.prepare_data_loader
        data = TensorDataset(torch.arange(12))

        def touch(worker_id):
            pass

        def stack(batch):
            return torch.stack([item for (item,) in batch])

        given = DataLoader(data, batch_size=5, num_workers=1, persistent_workers=True, prefetch_factor=3, worker_init_fn=touch, collate_fn=stack,
                           drop_last=True, timeout=60, multiprocessing_context="fork", generator=torch.Generator().manual_seed(7), shuffle=True)
        made = prepare(given)
        for name in ("num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn", "collate_fn", "timeout", "generator", "batch_size",
                     "drop_last", "in_order"):
            assert getattr(made, name, None) == getattr(given, name, None), name
        assert made.sampler.shuffle and made.sampler.seed == 7 and made.multiprocessing_context.get_start_method() == "fork"
        assert [batch.shape for batch in made] == [(5,)]

        by_batches = prepare(DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, drop_last=True)))
        assert by_batches.batch_size == 4 and by_batches.drop_last and by_batches.sampler.shuffle
        ordered = prepare(DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, drop_last=False)))
        assert not ordered.sampler.shuffle and [len(batch) for (batch,) in ordered] == [4, 2]
        one_by_one = prepare(DataLoader(data, batch_size=None))
        assert one_by_one.batch_size is None and [int(item) for (item,) in one_by_one] == list(range(raygo.train.get_context().get_world_rank(), 12, 2))

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(3))

        stream = DataLoader(Stream(), batch_size=3)
        assert prepare(stream) is stream
        with pytest.raises(ValueError, match="WeightedRandomSampler of its own"):
            prepare(DataLoader(data, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 12, 12)))
        raygo.train.report({"done": 1})

    assert fit(loop, tmp_path).metrics["done"] == 1


def test_reproducible_workers_and_mixed_precision(tmp_path):
    def loop():
        import random

        import numpy as np
        from torch.utils.data import DataLoader, Dataset

        raygo.train.torch.enable_reproducibility(3)
        first = (random.random(), float(np.random.rand()), float(torch.rand(())))
        raygo.train.torch.enable_reproducibility(3)
        assert first == (random.random(), float(np.random.rand()), float(torch.rand(())))

        class Noise(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                return np.random.rand(), random.random()

        seen = []
        for _ in range(2):
            torch.manual_seed(5)
            seen.append([tuple(map(float, pair)) for batch in raygo.train.torch.prepare_data_loader(DataLoader(Noise(), num_workers=2))
                         for pair in zip(*batch, strict=True)])
        assert seen[0] == seen[1] and len(set(seen[0])) == 4
        torch.use_deterministic_algorithms(False)

        raygo.train.torch.accelerate(amp=True)
        kinds = []

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(2, 1)

            def forward(self, x):
                out = self.linear(x)
                kinds.append(str(out.dtype))
                return out

        model = raygo.train.torch.prepare_model(Net())
        optimizer = raygo.train.torch.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        out = model(torch.ones(4, 2))
        raygo.train.torch.backward(out.sum())
        before = model.linear.bias.item()
        optimizer.step()
        raygo.train.report({"inside": kinds, "outside": str(out.dtype), "step": before - model.linear.bias.item()})

    metrics = fit(loop, tmp_path, workers=1).metrics
    assert metrics["inside"] == ["torch.bfloat16"] and metrics["outside"] == "torch.float32" and metrics["step"] == pytest.approx(0.4, abs=1e-3)


def test_accelerate_joins_the_group(tmp_path):
    pytest.importorskip("accelerate")

    def loop():
        from accelerate import Accelerator
        from torch.utils.data import DataLoader, TensorDataset

        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"):
            assert os.environ[name], name
        context = raygo.train.get_context()
        accelerator = Accelerator(cpu=True)
        assert accelerator.num_processes == context.get_world_size() == 2 and accelerator.process_index == context.get_world_rank()
        assert accelerator.local_process_index == context.get_local_rank() and accelerator.is_main_process == (context.get_world_rank() == 0)
        torch.manual_seed(accelerator.process_index)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.arange(8.0)[:, None]), batch_size=2)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        rows = []
        for (x,) in loader:
            rows += x.flatten().tolist()
            accelerator.backward(model(x).sum())
            optimizer.step()
            optimizer.zero_grad()
        weights = accelerator.gather(accelerator.unwrap_model(model).weight.detach().flatten())
        everything = accelerator.gather(torch.tensor(rows)).tolist()
        raygo.train.report({"weights": weights.tolist(), "rows": everything, "kind": type(model).__name__})

    metrics = fit(loop, tmp_path).metrics
    assert metrics["kind"] == "DistributedDataParallel" and metrics["weights"][0] == pytest.approx(metrics["weights"][1])
    assert sorted(metrics["rows"]) == list(range(8))


def test_lightning_trains_on_all_workers_and_refuses_strategies_of_its_own(tmp_path):
    pytest.importorskip("pytorch_lightning")

    def loop():
        import pytorch_lightning as pl
        from torch.utils.data import DataLoader, TensorDataset

        from raygo.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer

        class Net(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(1, 1)
                self.seen = []

            def training_step(self, batch, _):
                self.seen += batch[0].flatten().tolist()
                loss = self.net(batch[0]).square().mean()
                self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
                return loss

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)

        quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
        with pytest.raises(RuntimeError, match="Invalid strategy"):
            prepare_trainer(pl.Trainer(devices=1, **quiet))
        with pytest.raises(RuntimeError, match="Invalid cluster environment"):
            prepare_trainer(pl.Trainer(devices=1, strategy=RayDDPStrategy(), **quiet))
        pl.seed_everything(0)
        trainer = prepare_trainer(pl.Trainer(max_epochs=2, devices="auto", strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()],
                                             callbacks=[RayTrainReportCallback()], **quiet))
        net = Net()
        trainer.fit(net, DataLoader(TensorDataset(torch.arange(8.0)[:, None]), batch_size=2))
        out = [None, None]
        torch.distributed.all_gather_object(out, (net.net.weight.item(), sorted(net.seen)))
        assert out[0][0] == out[1][0] and sorted(out[0][1] + out[1][1]) == sorted([*range(8), *range(8)]), out

    result = fit(loop, tmp_path)
    assert len(result.metrics_dataframe) == 2 and result.metrics["epoch"] == 1 and result.metrics["step"] == 4 and result.metrics["loss"] > 0
    with result.checkpoint.as_directory() as folder:
        assert torch.load(os.path.join(folder, "checkpoint.ckpt"), weights_only=False)["global_step"] == 4


def test_transformers_takes_the_batches_of_a_dataset(tmp_path):
    pytest.importorskip("transformers")

    def loop(config):
        from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

        from raygo.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer

        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                                                         max_position_embeddings=8))
        rows = []

        def collate(arrays):
            rows.extend(arrays["labels"].tolist())
            return {"input_ids": torch.as_tensor(arrays["input_ids"].copy()), "labels": torch.as_tensor(arrays["labels"].copy())}

        args = TrainingArguments(output_dir=config["out"], max_steps=4, save_strategy="steps", save_steps=2, logging_steps=2, report_to="none", use_cpu=True,
                                 disable_tqdm=True, eval_strategy="steps", eval_steps=4)
        shard = raygo.train.get_dataset_shard("train")
        trainer = Trainer(model=model, args=args, train_dataset=shard.iter_torch_batches(batch_size=4, collate_fn=collate),
                          eval_dataset={name: shard.iter_torch_batches(batch_size=8) for name in "ab"})
        trainer.add_callback(RayTrainReportCallback())
        prepare_trainer(trainer).train()
        assert len(rows) == 16, rows     # 2 epochs of 8 rows, this worker's half

    import numpy as np

    data = raygo.data.from_items([{"tokens": np.full(4, i % 20), "labels": i % 2} for i in range(16)]).rename_columns({"tokens": "input_ids"})
    result = fit(loop, tmp_path / "runs", train_loop_config={"out": str(tmp_path / "out")}, datasets={"train": data})
    assert list(result.metrics_dataframe["step"]) == [2, 4] and "loss" in result.metrics
    assert result.metrics["eval_a_loss"] == result.metrics["eval_b_loss"] > 0
    with result.checkpoint.as_directory() as folder:
        assert os.path.isfile(os.path.join(folder, "checkpoint", "model.safetensors"))
