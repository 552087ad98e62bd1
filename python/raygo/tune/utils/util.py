"""Small things that trainables and searchers need."""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Tee", "UtilMonitor", "date_str", "diagnose_serialization", "retry_fn", "validate_save_restore", "validate_warmstart", "wait_for_gpu",
           "warn_if_slow"]

log = logging.getLogger("raygo.tune")

START_OF_TIME = time.time()


class Tee:
    """Writes to two streams; all else is asked of the first."""

    def __init__(self, stream1: Any, stream2: Any) -> None:
        self.stream1, self.stream2 = stream1, stream2

    def write(self, *args: Any, **kwargs: Any) -> Any:
        """Write to both."""
        self.stream2.write(*args, **kwargs)
        return self.stream1.write(*args, **kwargs)

    def flush(self, *args: Any, **kwargs: Any) -> None:
        """Flush both."""
        self.stream1.flush(*args, **kwargs)
        self.stream2.flush(*args, **kwargs)

    def seek(self, *args: Any, **kwargs: Any) -> Any:
        """Of the first."""
        return self.stream1.seek(*args, **kwargs)

    def tell(self, *args: Any, **kwargs: Any) -> Any:
        """Of the first."""
        return self.stream1.tell(*args, **kwargs)

    def read(self, *args: Any, **kwargs: Any) -> Any:
        """Of the first."""
        return self.stream1.read(*args, **kwargs)

    def readline(self, *args: Any, **kwargs: Any) -> Any:
        """Of the first."""
        return self.stream1.readline(*args, **kwargs)

    def detach(self) -> Any:
        """Of the first."""
        return self.stream1.detach()

    @property
    def encoding(self) -> Any:
        """Of the first."""
        return self.stream1.encoding

    @property
    def error(self) -> Any:
        """Of the first."""
        return self.stream1.errors

    @property
    def newlines(self) -> Any:
        """Of the first."""
        return self.stream1.newlines

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream1, name)


class UtilMonitor(threading.Thread):
    """Notes the use of CPU and memory while it runs; needs psutil.

    Parameters
    ----------
    start : bool
        Whether to run at all.
    delay : float
        Seconds between two looks.
    """

    def __init__(self, start: bool = True, delay: float = 0.7) -> None:
        super().__init__(name="raygo-util-monitor", daemon=True)
        import psutil

        self._psutil = psutil
        self._delay = delay
        self._ended = threading.Event()
        self._seen: dict[str, list[float]] = {"cpu_util_percent": [], "ram_util_percent": []}
        if start:
            self.start()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._ended.wait(self._delay):
            self._seen["cpu_util_percent"].append(float(self._psutil.cpu_percent(interval=None)))
            self._seen["ram_util_percent"].append(float(self._psutil.virtual_memory().percent))

    def get_data(self) -> dict[str, Any]:
        """The means since the last call."""
        seen, self._seen = self._seen, {key: [] for key in self._seen}
        return {"perf": {key: sum(values) / len(values) for key, values in seen.items() if values}}

    def stop(self) -> None:
        """No more looks."""
        self._ended.set()


class warn_if_slow:
    """Warns when a block takes long.

    Parameters
    ----------
    name : str
        What the block does.
    threshold : float, optional
        Seconds that are not long; 0.5 by default.
    """

    DEFAULT_THRESHOLD = 0.5
    DEFAULT_MESSAGE = "The `{name}` operation took {duration:.3f} s, which may be a performance bottleneck."

    def __init__(self, name: str, threshold: float | None = None, message: str | None = None, disable: bool = False) -> None:
        self.name, self.disable = name, disable
        self.threshold = threshold or self.DEFAULT_THRESHOLD
        self.message = message or self.DEFAULT_MESSAGE
        self.too_slow = False

    def __enter__(self) -> warn_if_slow:
        self.start = time.monotonic()
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        took = time.monotonic() - self.start
        if took > self.threshold and not self.disable:
            self.too_slow = True
            log.warning(self.message.format(name=self.name, duration=took))


def date_str() -> str:
    """The time, as folders have it."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def retry_fn(fn: Callable[[], Any], exception_type: Any = Exception, num_retries: int = 3, sleep_time: float = 1, timeout: float | None = None) -> bool:
    """Call a function until it does not raise; whether that happened.

    Parameters
    ----------
    fn : callable
        The function.
    exception_type : class or tuple of classes
        What is worth another attempt.
    num_retries : int
        How many attempts.
    sleep_time : float
        Seconds between two of them.
    timeout : float, optional
        Seconds after which no further attempt is made.
    """
    end = None if timeout is None else time.monotonic() + timeout
    for attempt in range(max(1, num_retries)):
        try:
            fn()
            return True
        except exception_type as error:
            log.warning("attempt %d of %d failed: %s", attempt + 1, num_retries, error)
        if end is not None and time.monotonic() >= end:
            return False
        if attempt + 1 < num_retries:
            time.sleep(sleep_time)      # back off
    return False


def diagnose_serialization(trainable: Any) -> Any:
    """Why a trainable cannot be pickled, printed; True if it can."""
    from raygo.util.check_serialize import inspect_serializability

    good, failures = inspect_serializability(trainable)
    return True if good else failures


def validate_save_restore(trainable_cls: Any, config: dict[str, Any] | None = None, num_gpus: int = 0) -> bool:
    """Save and restore a Trainable in two processes, and fail where that fails.

    Parameters
    ----------
    trainable_cls : class
        The Trainable.
    config : dict, optional
        Its config.
    num_gpus : int
        GPUs of each process.
    """
    import tempfile

    import raygo

    remote = raygo.remote(num_gpus=num_gpus)(_Holder)
    first, second = remote.remote(trainable_cls, config or {}), remote.remote(trainable_cls, config or {})
    try:
        with tempfile.TemporaryDirectory(prefix="validate_save_restore_") as folder:
            for _ in range(3):
                raygo.get(first.train.remote())
            raygo.get(first.save.remote(folder))
            raygo.get(second.restore.remote(folder))
            iteration = raygo.get(second.train.remote())["training_iteration"]
        if iteration != 4:
            raise AssertionError(f"{trainable_cls.__name__} is at iteration {iteration} after restoring at 3 and a step; it should be at 4")
    finally:
        raygo.kill(first)
        raygo.kill(second)
    return True


class _Holder:
    def __init__(self, cls: Any, config: dict[str, Any]) -> None:
        self._it = cls(config)

    def train(self) -> Any:
        return self._it.train()

    def save(self, folder: str) -> None:
        self._it.save(folder)

    def restore(self, folder: str) -> None:
        self._it.restore(folder)


def validate_warmstart(parameter_names: list[str], points_to_evaluate: Any, evaluated_rewards: Any, validate_point_name_lengths: bool = True) -> None:
    """Refuse points and rewards that do not go together."""
    if points_to_evaluate:
        if not isinstance(points_to_evaluate, list):
            raise TypeError(f"points_to_evaluate is a {type(points_to_evaluate).__name__}: give a list")
        for point in points_to_evaluate:
            if not isinstance(point, (dict, list)):
                raise TypeError(f"points_to_evaluate has {point!r}: give dicts or lists of values")
            if validate_point_name_lengths and len(point) != len(parameter_names):
                raise ValueError(f"the point {point} has {len(point)} values; the parameters are {parameter_names}")
    if points_to_evaluate and evaluated_rewards:
        if not isinstance(evaluated_rewards, list):
            raise TypeError(f"evaluated_rewards is a {type(evaluated_rewards).__name__}: give a list")
        if len(evaluated_rewards) != len(points_to_evaluate):
            raise ValueError(f"there are {len(points_to_evaluate)} points_to_evaluate and {len(evaluated_rewards)} evaluated_rewards")


def wait_for_gpu(gpu_id: Any = None, target_util: float = 0.01, retry: int = 20, delay_s: int = 5, gpu_memory_limit: float | None = None) -> bool:
    """Wait until a GPU's memory is free, as a process that has ended may hold it a little longer; needs the package gputil.

    Parameters
    ----------
    gpu_id : int or str, optional
        Which; the first that this process was given by default.
    target_util : float
        The share of memory that may be in use.
    retry, delay_s : int
        How many looks, how many seconds apart.
    """
    try:
        import GPUtil
    except ImportError:
        raise RuntimeError("wait_for_gpu needs the package gputil: pip install gputil") from None
    import raygo

    if gpu_id is None:
        ids = raygo.get_gpu_ids()
        if not ids:
            raise RuntimeError("wait_for_gpu: this process was given no GPU")
        gpu_id = ids[0]
    attribute = "id" if str(gpu_id).isdigit() else "uuid"
    for _ in range(int(retry)):
        gpus = GPUtil.getGPUs()
        gpu = next((g for g in gpus if str(getattr(g, attribute)) == str(gpu_id)), None)
        if gpu is None:
            raise ValueError(f"{gpu_id} is none of the GPUs of this machine: {[getattr(g, attribute) for g in gpus]}")
        if gpu.memoryUtil <= target_util:
            return True
        log.info("waiting for GPU %s: %.1f %% of its memory is in use", gpu_id, 100 * gpu.memoryUtil)
        time.sleep(delay_s)      # back off
    raise RuntimeError(f"the memory of GPU {gpu_id} is still in use")
