"""TensorFlow, Keras and JAX on several workers: run where the packages are there, and where they are not, say so."""
import importlib.util
import os

import pytest

import raygo.train
from raygo.train import RunConfig, ScalingConfig

pytestmark = pytest.mark.timeout(500)


def settings(tmp_path, workers=2):
    return {"scaling_config": ScalingConfig(num_workers=workers), "run_config": RunConfig(storage_path=str(tmp_path))}


@pytest.mark.parametrize("package, module", [("tensorflow", "raygo.train.tensorflow"), ("jax", "raygo.train.v2.jax")])
def test_a_package_that_is_absent_is_named(package, module):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(ImportError, match=f"needs the package {package}: pip install {package}"):
        importlib.import_module(module)


def test_tensorflow_workers_share_their_gradients(tmp_path):
    pytest.importorskip("tensorflow")
    from raygo.train.tensorflow import TensorflowTrainer

    def loop(config):
        import tensorflow as tf

        from raygo.train.tensorflow import prepare_dataset_shard

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        rank = raygo.train.get_context().get_world_rank()
        data = prepare_dataset_shard(tf.data.Dataset.from_tensor_slices([[rank + 1.0]] * 4).batch(2))
        with strategy.scope():
            weight = tf.Variable(1.0)

        @tf.function
        def step(batch):
            def replica(rows):
                gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, tf.reduce_mean(rows))
                weight.assign_sub(config["lr"] * gradient)
                return gradient

            return strategy.run(replica, args=(batch,))

        steps = [float(step(batch)) for batch in strategy.experimental_distribute_dataset(data)]
        raygo.train.report({"gradients": steps, "weight": float(weight.numpy()), "replicas": strategy.num_replicas_in_sync})

    metrics = TensorflowTrainer(loop, train_loop_config={"lr": 0.1}, **settings(tmp_path)).fit().metrics
    assert metrics["replicas"] == 2 and metrics["gradients"] == [1.5] * 4 and metrics["weight"] == pytest.approx(0.4)


def test_kerass_callback_reports_and_checkpoints(tmp_path):
    pytest.importorskip("tensorflow")
    from raygo.train.tensorflow import TensorflowCheckpoint, TensorflowTrainer

    def loop():
        import keras
        import numpy as np

        from raygo.train.tensorflow.keras import ReportCheckpointCallback

        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
        x = np.ones((8, 1), dtype=np.float32)
        model.fit(x, 2 * x, epochs=20, verbose=0, callbacks=[ReportCheckpointCallback(metrics={"mse": "loss"})])
        with pytest.raises(ValueError, match="names epoch; there are"):
            ReportCheckpointCallback(checkpoint_on="epoch")

    result = TensorflowTrainer(loop, **settings(tmp_path, workers=1)).fit()
    assert len(result.metrics_dataframe) == 20 and result.metrics["mse"] < 0.1
    model = TensorflowCheckpoint(result.checkpoint.path).get_model()
    assert float(model.get_weights()[0][0, 0]) == pytest.approx(2, abs=0.2)


def test_jax_workers_see_each_others_devices(tmp_path):
    pytest.importorskip("jax")
    from raygo.train.v2.jax import JaxConfig, JaxTrainer

    def loop(config):
        import jax
        import jax.numpy as jnp
        from jax.experimental import multihost_utils

        rank = raygo.train.get_context().get_world_rank()
        assert jax.process_count() == 2 and jax.process_index() == rank and jax.local_device_count() == 1
        everything = multihost_utils.process_allgather(jnp.array([rank + config["add"]]))
        raygo.train.report({"sum": float(everything.sum()), "platform": jax.devices()[0].platform, "devices": jax.device_count()})

    metrics = JaxTrainer(loop, train_loop_config={"add": 10}, **settings(tmp_path)).fit().metrics
    assert metrics["sum"] == 21 and metrics["platform"] == "cpu" and metrics["devices"] == 2
    assert os.environ.get("JAX_PLATFORMS") is None      # only the workers'
    with pytest.raises(NotImplementedError, match="TPU"):
        JaxConfig(use_tpu=True)
