"""What a training function does to its data."""
from __future__ import annotations

from typing import Any

__all__ = ["prepare_dataset_shard"]


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """A tf.data.Dataset that TensorFlow does not split once more: its rows are this worker's part already.

    Parameters
    ----------
    tf_dataset_shard : tf.data.Dataset
        The worker's rows.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options)
