"""Training in the driver, without workers."""
import os
import tempfile

import pytest

import raygo.data
from raygo import train
from raygo.train import Checkpoint, CheckpointUploadMode, DataParallelTrainer, Result, RunConfig, ScalingConfig, UserCallback, _session
from raygo.train.collective import barrier, broadcast_from_rank_zero
from raygo.train.error import ControllerError


def fit(loop, tmp_path, **kwargs):
    return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=0), run_config=RunConfig(storage_path=str(tmp_path), name="run", verbose=2),
                               **kwargs).fit()


def folder_with(n):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "n"), "w") as file:
        file.write(str(n))
    return Checkpoint.from_directory(folder)


def test_the_function_runs_in_the_driver(tmp_path, capsys):
    def loop(config):
        assert train.get_context().get_world_size() == 1 and train.get_context().get_world_rank() == 0
        barrier()
        rows = [row["id"] for row in train.get_dataset_shard("train").iter_rows()]
        start = train.get_checkpoint()
        for n in range(3):
            mode = CheckpointUploadMode.ASYNC if n == 1 else CheckpointUploadMode.SYNC
            train.report({"n": n, "rows": sum(rows)}, checkpoint=folder_with(n) if n < 2 else None, checkpoint_upload_mode=mode)
        seen = [reported.metrics["n"] for reported in train.get_all_reported_checkpoints()]
        return os.getpid(), start, broadcast_from_rank_zero(config["lr"]), seen, os.path.basename(train.get_checkpoint().path)

    result = fit(loop, tmp_path, train_loop_config={"lr": 0.1}, datasets={"train": raygo.data.range(4)})
    assert result.return_value == (os.getpid(), None, 0.1, [0, 1], "checkpoint_000001")
    assert result.metrics["n"] == 2 and result.metrics["rows"] == 6 and len(result.best_checkpoints) == 2
    assert list(Result.from_path(result.path).metrics_dataframe["n"]) == [0, 1, 2]
    assert "3 report(s)" in capsys.readouterr().err
    assert _session.current is None


def test_an_error_is_the_functions_own_and_the_run_goes_on(tmp_path):
    def loop():
        start = train.get_checkpoint()
        train.report({"n": 1}, checkpoint=folder_with(1))
        if start is None:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        fit(loop, tmp_path)
    assert list(fit(loop, tmp_path).metrics_dataframe["n"]) == [1, 1]


def test_a_run_that_is_to_stop(tmp_path):
    def loop():
        n = 0
        while True:
            n += 1
            train.report({"n": n})

    assert DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=0),
                               run_config=RunConfig(storage_path=str(tmp_path), stop={"n": 3}, verbose=0)).fit().metrics["n"] == 3


@pytest.mark.parametrize("mode", list(CheckpointUploadMode))
def test_a_callbacks_error_is_not_the_functions(tmp_path, mode):
    class Fails(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            raise ZeroDivisionError("the callback's")

    def loop():
        for n in range(100):
            try:
                train.report({"n": n}, checkpoint=folder_with(n), checkpoint_upload_mode=mode)
            except Exception:
                pass  # as loops do that go on without a report

    with pytest.raises(ControllerError, match="the callback's"):
        DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=0),
                            run_config=RunConfig(storage_path=str(tmp_path), callbacks=[Fails()])).fit()
    assert _session.current is None
