"""Names in results and folders; they are Ray's."""
from __future__ import annotations

from raygo.train.constants import (  # noqa: F401
    CHECKPOINT_DIR_NAME,
    EXPR_PARAM_FILE,
    EXPR_PARAM_PICKLE_FILE,
    EXPR_PROGRESS_FILE,
    TIME_TOTAL_S,
)
from raygo.train.constants import RESULT_FILE_JSON as EXPR_RESULT_FILE

DONE = "done"
SHOULD_CHECKPOINT = "should_checkpoint"
RESULT_DUPLICATE = "__duplicate__"
TRIAL_INFO = "__trial_info__"
TRIAL_ID = "trial_id"
EXPERIMENT_TAG = "experiment_tag"
TRAINING_ITERATION = "training_iteration"
TIME_THIS_ITER_S = "time_this_iter_s"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
TIMESTEPS_TOTAL = "timesteps_total"
EPISODES_THIS_ITER = "episodes_this_iter"
EPISODES_TOTAL = "episodes_total"
EPISODE_REWARD_MEAN = "episode_reward_mean"
MEAN_ACCURACY = "mean_accuracy"
MEAN_LOSS = "mean_loss"
HOSTNAME = "hostname"
NODE_IP = "node_ip"
PID = "pid"
CONFIG_PREFIX = "config"
# What a trainable that returns a bare number has reported.
DEFAULT_METRIC = "_metric"
DEFAULT_EXPERIMENT_NAME = "default"

DEFAULT_RESULT_KEYS = (TRAINING_ITERATION, TIME_TOTAL_S, MEAN_ACCURACY, MEAN_LOSS)
AUTO_RESULT_KEYS = (TRAINING_ITERATION, TIME_TOTAL_S, EPISODES_TOTAL, TIMESTEPS_TOTAL, NODE_IP, HOSTNAME, PID, "date", "timestamp",
                    TIME_THIS_ITER_S, "time_since_restore", "timesteps_since_restore", "iterations_since_restore", "config", TRIAL_ID,
                    EXPERIMENT_TAG, DONE, CHECKPOINT_DIR_NAME)
DEFAULT_EXPERIMENT_INFO_KEYS = ("trainable_name", EXPERIMENT_TAG, TRIAL_ID)
DEBUG_METRICS = (TRIAL_ID, "experiment_id", "date", "timestamp", PID, HOSTNAME, NODE_IP, "config", "time_since_restore", "timesteps_since_restore",
                 "iterations_since_restore")

STDOUT_FILE = "stdout"
STDERR_FILE = "stderr"
EXPR_ERROR_FILE = "error.txt"
EXPR_ERROR_PICKLE_FILE = "error.pkl"
EXPR_META_FILE = "trial_metadata.json"
JOB_META_FILE = "job_status.json"
EXPR_RESULT_FILE = EXPR_RESULT_FILE
