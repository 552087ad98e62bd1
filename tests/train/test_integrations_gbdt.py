"""XGBoost and LightGBM on several workers."""
import os
import socket

import pytest

import raygo.data
import raygo.train
from raygo.train import CheckpointConfig, RunConfig, ScalingConfig

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(400)


def frame(rows, seed):
    """Two numbers and a flag that say most of the label."""
    random = np.random.default_rng(seed)
    made = pd.DataFrame({"a": random.normal(size=rows), "b": random.normal(size=rows), "c": random.integers(0, 2, rows)})
    made["label"] = ((made["a"] + made["b"] * made["c"] + random.normal(scale=0.3, size=rows)) > 0).astype(int)
    return made


TRAIN, TEST = frame(301, 0), frame(200, 1)      # an odd number: the parts differ by a row


def datasets():
    return {"train": raygo.data.from_pandas(TRAIN), "valid": raygo.data.from_pandas(TEST)}


def settings(tmp_path, workers=2, **config):
    return {"scaling_config": ScalingConfig(num_workers=workers), "run_config": RunConfig(storage_path=str(tmp_path), **config)}


def test_xgboost_gives_what_one_process_gives_and_goes_on(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    from raygo.train.xgboost import XGBoostTrainer

    params = {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 3, "max_bin": 512}
    dtrain, dtest = (xgboost.DMatrix(f.drop(columns="label"), f["label"]) for f in (TRAIN, TEST))
    alone: dict = {}
    single = xgboost.train({**params, "nthread": 1}, dtrain, 8, evals=[(dtrain, "train"), (dtest, "valid")], evals_result=alone, verbose_eval=False)

    first = XGBoostTrainer(label_column="label", params=params, num_boost_round=5, datasets=datasets(),
                           **settings(tmp_path, name="first", checkpoint_config=CheckpointConfig(checkpoint_frequency=2))).fit()
    assert [m["training_iteration"] for _, m in first.best_checkpoints] == [2, 4, 6]      # the last round once more, with its checkpoint
    both = XGBoostTrainer(label_column="label", params=params, num_boost_round=8, datasets=datasets(), resume_from_checkpoint=first.checkpoint,
                          **settings(tmp_path, name="second")).fit()
    assert both.metrics["training_iteration"] == 4      # 3 more rounds, and the last one's checkpoint
    model = XGBoostTrainer.get_model(both.checkpoint)
    assert model.num_boosted_rounds() == 8 and np.abs(model.predict(dtest) - single.predict(dtest)).mean() < 0.02
    for data in ("train", "valid"):
        assert both.metrics[f"{data}-logloss"] == pytest.approx(alone[data]["logloss"][-1], abs=0.02)


def test_lightgbm_gives_what_one_process_gives_and_goes_on(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    from raygo.train.lightgbm import LightGBMTrainer

    params = {"objective": "binary", "metric": "binary_logloss", "num_leaves": 7, "verbose": -1, "min_data_in_bin": 1}
    features = TEST.drop(columns="label")
    single = lightgbm.train({**params, "num_threads": 1}, lightgbm.Dataset(TRAIN.drop(columns="label"), TRAIN["label"]), 8)
    first = LightGBMTrainer(label_column="label", params=params, num_boost_round=5, datasets=datasets(), **settings(tmp_path, name="first")).fit()
    assert first.metrics["training_iteration"] == 5 and len(first.best_checkpoints) == 1
    both = LightGBMTrainer(label_column="label", params=params, num_boost_round=8, datasets=datasets(), resume_from_checkpoint=first.checkpoint,
                           **settings(tmp_path, name="second")).fit()
    model = LightGBMTrainer.get_model(both.checkpoint)
    assert model.num_trees() == 8 and np.abs(model.predict(features) - single.predict(features)).mean() < 0.05
    mine = -np.log(np.where(TEST["label"] == 1, model.predict(features), 1 - model.predict(features))).mean()
    assert both.metrics["valid-binary_logloss"] == pytest.approx(mine, abs=1e-6)      # of all rows: the set is not split


def test_every_rank_takes_part_in_xgboosts_collective(tmp_path):
    pytest.importorskip("xgboost")
    from raygo.train.xgboost import RayTrainReportCallback, XGBoostCheckpoint, XGBoostTrainer

    def loop(config):
        import xgboost
        from xgboost import collective

        context = raygo.train.get_context()
        assert collective.get_world_size() == 2 and collective.get_rank() == context.get_world_rank()
        rows = raygo.train.get_dataset_shard("train").materialize().to_pandas()
        total = int(collective.allreduce(np.array([len(rows)]), collective.Op.SUM)[0])
        dtrain = xgboost.DMatrix(rows.drop(columns="label"), rows["label"])
        report = RayTrainReportCallback({"loss": "train-logloss"}, filename="own.json", frequency=1,
                                        results_postprocessing_fn=lambda found: {**found, "rows": total})
        model = xgboost.train(config, dtrain, 2, evals=[(dtrain, "train")], callbacks=[report], verbose_eval=False)
        with pytest.raises(KeyError, match="valid-error; it has train-logloss"):
            xgboost.train(config, dtrain, 1, evals=[(dtrain, "train")], callbacks=[RayTrainReportCallback("valid-error")], verbose_eval=False)
        kept = XGBoostCheckpoint.from_model(model)
        assert kept.get_model().num_boosted_rounds() == 2 and os.listdir(kept.path) == ["model.json"]

    result = XGBoostTrainer(loop, train_loop_config={"objective": "binary:logistic", "eval_metric": "logloss"}, datasets=datasets(),
                            **settings(tmp_path)).fit()
    assert len(result.metrics_dataframe) == 2 and result.metrics["rows"] == 301 and 0 < result.metrics["loss"] < 0.6
    assert RayTrainReportCallback.get_model(result.checkpoint, "own.json").num_boosted_rounds() == 2
    with pytest.raises(FileNotFoundError, match="no file model.ubj; it has own.json"):
        RayTrainReportCallback.get_model(result.checkpoint)


def test_a_worker_keeps_its_port_until_it_is_asked_for():
    pytest.importorskip("lightgbm")
    from raygo.train import _ports
    from raygo.train.lightgbm import config

    with pytest.raises(RuntimeError, match="training function of a LightGBMTrainer"):
        config.get_network_params()
    port = _ports.reserve()
    try:
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("", port))
        config._remember({"machines": f"127.0.0.1:{port}", "local_listen_port": port, "num_machines": 1})
        assert config.get_network_params()["local_listen_port"] == port
        with socket.socket() as other:
            other.bind(("", port))
    finally:
        config._params = None


def test_frames_as_lightgbm_takes_them():
    pytest.importorskip("lightgbm")
    from raygo.train.lightgbm import normalize_pandas_for_lightgbm

    made = normalize_pandas_for_lightgbm(pd.DataFrame({
        "a": pd.array([1, None], dtype="Int64"), "b": pd.array([1, 2], dtype="Int32"), "c": ["x", "y"], "d": pd.array([True, False], dtype="boolean"),
        "e": [0.5, 1.5]}, index=[5, 6]))
    assert [str(t) for t in made.dtypes] == ["float64", "int64", "category", "bool", "float64"] and list(made.index) == [5, 6]
    assert np.isnan(made["a"].iloc[1]) and made["a"].iloc[0] == 1


def test_a_lightgbm_cross_validation_reports_means_and_deviations(monkeypatch):
    lightgbm = pytest.importorskip("lightgbm")
    from raygo.tune.integration.lightgbm import TuneReportCallback

    said: list[dict] = []
    monkeypatch.setattr("raygo.tune.report", lambda metrics, **_: said.append(metrics))
    data = lightgbm.Dataset(TRAIN.drop(columns="label"), TRAIN["label"])
    lightgbm.cv({"objective": "binary", "metric": "binary_error", "verbose": -1, "num_threads": 1}, data, 2, nfold=3,
                callbacks=[TuneReportCallback({"mean": "valid-binary_error-mean", "deviation": "valid-binary_error-stdv"})])
    assert len(said) == 2 and all(0 < m["mean"] < 0.5 and 0 <= m["deviation"] < 0.5 for m in said), said


def test_half_of_a_classic_trainer_is_refused():
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    from raygo.train.lightgbm import LightGBMTrainer
    from raygo.train.xgboost import XGBoostConfig, XGBoostTrainer

    for trainer in (XGBoostTrainer, LightGBMTrainer):
        with pytest.raises(ValueError, match="params is missing"):
            trainer(label_column="y", datasets={"train": raygo.data.range(1)})
        with pytest.raises(KeyError, match="needs datasets"):
            trainer(label_column="y", params={}, datasets={"valid": raygo.data.range(1)})
        with pytest.raises(ValueError, match="and also label_column"):
            trainer(lambda: None, label_column="y")
        with pytest.raises(ValueError, match="does not apply"):
            trainer(lambda: None, run_config=RunConfig(checkpoint_config=CheckpointConfig(checkpoint_frequency=2)))
    with pytest.raises(NotImplementedError, match="only 'rabit'"):
        XGBoostConfig("federated")
