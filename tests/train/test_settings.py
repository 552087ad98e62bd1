"""Settings and checkpoints, which need no session."""
import os

import numpy
import pytest

from raygo import cloudpickle
from raygo.train import Checkpoint, CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig


def test_scaling_config():
    scaling = ScalingConfig(num_workers=3, resources_per_worker={"CPU": 2})
    assert scaling.total_resources == {"CPU": 6} and scaling.num_cpus_per_worker == 2
    assert scaling.as_placement_group_factory().bundles == [{"CPU": 2}] * 3
    assert ScalingConfig(trainer_resources={"CPU": 1}, num_workers=2).as_placement_group_factory().bundles == [{"CPU": 2}, {"CPU": 1}]
    gpus = ScalingConfig(num_workers=4, use_gpu=True)
    assert gpus.num_gpus_per_worker == 1 and gpus.total_resources == {"CPU": 4, "GPU": 4}
    special = ScalingConfig(num_workers=2, accelerator_type="A100")
    assert special.total_resources == {"CPU": 2, "accelerator_type:A100": 0.002}
    assert special.additional_resources_per_worker == {"accelerator_type:A100": 0.001}
    assert ScalingConfig(num_workers=numpy.int64(2)).max_workers == 2
    assert ScalingConfig.from_placement_group_factory(gpus.as_placement_group_factory()).total_resources == gpus.total_resources


@pytest.mark.parametrize("wrong", [{"resources_per_worker": {"GPU": 1}}, {"use_gpu": True, "resources_per_worker": {"GPU": 0}},
                                   {"num_workers": -1}, {"num_workers": (0, 2)}, {"num_workers": 1.5}, {"placement_strategy": "TIGHT"},
                                   {"num_workers": 2, "label_selector": [{"zone": "a"}]}, {"num_workers": (3, 2)},
                                   {"num_workers": (1, 2, 3)}, {"resources_per_worker": {"CPU": -1}}])
def test_scaling_config_refuses(wrong):
    with pytest.raises(ValueError):
        ScalingConfig(**wrong)


async def asleep():
    pass


def test_other_settings_refuse():
    for make in (lambda: CheckpointConfig(num_to_keep=0), lambda: CheckpointConfig(num_to_keep=1.5), lambda: FailureConfig(max_failures="3"),
                 lambda: CheckpointConfig(checkpoint_score_order="most"),
                 lambda: FailureConfig(max_failures=-2), lambda: RunConfig(failure_config=3),
                 lambda: DataParallelTrainer(lambda a, b: None), lambda: DataParallelTrainer(7), lambda: DataParallelTrainer(asleep),
                 lambda: DataParallelTrainer(lambda: (yield)),
                 lambda: DataParallelTrainer(lambda: None, scaling_config={"num_workers": 2}),
                 lambda: DataParallelTrainer(lambda: None, datasets={"train": [1]}), lambda: DataParallelTrainer(lambda: None, dataset_config={}),
                 lambda: DataParallelTrainer(lambda: None, backend_config={"backend": "gloo"}), lambda: RunConfig(storage_path=3)):
        with pytest.raises(ValueError):
            make()
    for wrong in (lambda: RunConfig(storage_path="no-such-scheme://bucket/runs"), lambda: RunConfig(storage_path="x", storage_filesystem="disk"),
                  lambda: RunConfig(storage_filesystem=object())):
        with pytest.raises(ValueError):
            wrong()
    for absent in ({"use_tpu": True}, {"label_selector": {"zone": "a"}}):
        with pytest.raises(NotImplementedError):
            ScalingConfig(**absent)


def test_checkpoint(tmp_path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "a.bin").write_bytes(b"123")
    (source / "sub" / "b.txt").write_text("b")
    checkpoint = Checkpoint.from_directory(source)
    with checkpoint.as_directory() as folder:
        assert folder == str(source)
    assert sorted(os.listdir(checkpoint.to_directory(tmp_path / "copy"))) == ["a.bin", "sub"]
    assert os.path.isfile(os.path.join(checkpoint.to_directory(), "sub", "b.txt"))
    checkpoint.set_metadata({"k": 1})
    checkpoint.update_metadata({"l": 2})
    again = cloudpickle.loads(cloudpickle.dumps(checkpoint))
    assert again.path == checkpoint.path and again.get_metadata() == {"k": 1, "l": 2}
    assert repr(again) == f"Checkpoint(filesystem=local, path={source})"
    assert Checkpoint(f"file://{source}").path == str(source)
    with pytest.raises(FileNotFoundError, match="gone"):
        Checkpoint(tmp_path / "gone").to_directory()
