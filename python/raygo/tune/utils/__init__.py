"""Small things."""
from raygo.tune.utils.dicts import deep_update, flatten_dict, merge_dicts, unflattened_lookup
from raygo.tune.utils.util import (
    UtilMonitor,
    date_str,
    diagnose_serialization,
    retry_fn,
    validate_save_restore,
    validate_warmstart,
    wait_for_gpu,
    warn_if_slow,
)

__all__ = ["UtilMonitor", "date_str", "deep_update", "diagnose_serialization", "flatten_dict", "merge_dicts", "retry_fn", "unflattened_lookup",
           "validate_save_restore", "validate_warmstart", "wait_for_gpu", "warn_if_slow"]
