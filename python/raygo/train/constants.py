"""Names that appear in results, folders and environment variables; they are Ray's."""
import os

DEFAULT_STORAGE_PATH = os.path.expanduser("~/ray_results")
RESULT_FILE_JSON = "result.json"
CHECKPOINT_DIR_NAME = "checkpoint_dir_name"
CHECKPOINT_METADATA_KEY = "_checkpoint_metadata"
CHECKPOINT_RANK_KEY = "_checkpoint_rank"
TRAIN_CHECKPOINT_SUBDIR = "checkpoints"
TIME_TOTAL_S = "time_total_s"
TRAIN_PLACEMENT_GROUP_TIMEOUT_S_ENV = "TRAIN_PLACEMENT_GROUP_TIMEOUT_S"
TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S = "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S"
DEFAULT_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S = 30
WORKER_HOSTNAME = "_hostname"
WORKER_NODE_IP = "_node_ip"
WORKER_PID = "_pid"

EXPR_PROGRESS_FILE = "progress.csv"
EXPR_PARAM_FILE = "params.json"
EXPR_PARAM_PICKLE_FILE = "params.pkl"
CHECKPOINT_MANAGER_SNAPSHOT_FILENAME = "checkpoint_manager_snapshot.json"
TRAINER_PICKLE_FILE = "trainer.pkl"
# How long a report waits for ranks that have not made it, before it is taken without them.
REPORT_PATIENCE_S_ENV = "RAYGO_TRAIN_REPORT_PATIENCE_S"
DEFAULT_REPORT_PATIENCE_S = 30.0
# How long a worker group waits for resources that others hold.
DEFAULT_PLACEMENT_GROUP_TIMEOUT_S = 100.0

TRAIN_ENV_VARS = {TRAIN_PLACEMENT_GROUP_TIMEOUT_S_ENV, TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S, REPORT_PATIENCE_S_ENV}
