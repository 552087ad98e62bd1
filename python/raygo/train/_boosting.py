"""What XGBoost and LightGBM share: trainers, checkpoints, and callbacks that report."""
from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from raygo.train._checkpoint import Checkpoint
from raygo.train._data_config import DataConfig
from raygo.train._framework_checkpoint import FrameworkCheckpoint
from raygo.train.data_parallel_trainer import DataParallelTrainer

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

Metrics = str | list[str] | dict[str, str] | None


class Reporter:
    """Chooses the metrics, and when there is a checkpoint.

    Parameters
    ----------
    metrics : str, list of str or dict, optional
        Which of the evaluation's metrics ("valid-error") are reported; a dict has the name to report each under.  All by default.
    filename : str
        The model's file in the checkpoint.
    frequency : int
        A checkpoint every so many iterations; 0: none before the end.
    checkpoint_at_end : bool
        A checkpoint at the end.
    results_postprocessing_fn : callable, optional
        Takes the dict of metrics of an iteration and gives what is reported.
    """

    def __init__(self, metrics: Metrics, filename: str, frequency: int, checkpoint_at_end: bool,
                 results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None) -> None:
        if metrics is not None and not isinstance(metrics, (str, list, dict)):
            raise TypeError(f"metrics is {metrics!r}: give a name, a list of names, or a dict from the name to report to the evaluation's name")
        if not isinstance(frequency, int) or frequency < 0:
            raise ValueError(f"frequency is {frequency!r}: give a number of iterations, or 0")
        self.metrics = [metrics] if isinstance(metrics, str) else metrics
        self.filename = filename
        self.frequency = frequency
        self.at_end = checkpoint_at_end
        self.postprocess = results_postprocessing_fn

    def chosen(self, found: dict[str, Any]) -> dict[str, Any]:
        """What is reported of an iteration's metrics."""
        if self.metrics is None:
            said = found
        else:
            wanted = self.metrics if isinstance(self.metrics, Mapping) else {name: name for name in self.metrics}
            absent = sorted(set(wanted.values()) - set(found))
            if absent:
                raise KeyError(f"the evaluation has no metric {', '.join(absent)}; it has {', '.join(sorted(found)) or 'none: give evaluation sets'}")
            said = {name: found[source] for name, source in wanted.items()}
        return self.postprocess(said) if self.postprocess is not None else said

    def is_due(self, iteration: int) -> bool:
        """Whether the iteration, counted from 0, ends with a checkpoint."""
        return self.frequency > 0 and (iteration + 1) % self.frequency == 0


class Destination:
    """Where a callback's reports go: here, to the run whose worker this is."""

    def saves(self) -> bool:
        """Whether this process makes the checkpoint: all ranks have the same model."""
        from raygo.train.context import get_context

        return get_context().get_world_rank() == 0

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None = None) -> None:
        """Report."""
        import raygo.train

        raygo.train.report(metrics, checkpoint=checkpoint)


@contextlib.contextmanager
def checkpoint_of(save: Callable[[str], Any], filename: str) -> Iterator[Checkpoint]:
    """A checkpoint with a file that `save` writes; it is there while the block runs."""
    folder = tempfile.mkdtemp(prefix="model-")
    try:
        save(os.path.join(folder, filename))
        yield Checkpoint.from_directory(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def model_file(folder: str, filename: str) -> str:
    """The model's path in a checkpoint's folder; an error says what is there instead."""
    path = os.path.join(folder, filename)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"the checkpoint has no file {filename}; it has {', '.join(sorted(os.listdir(folder))) or 'none'}. "
                                "Give get_model the filename that the callback was made with.")
    return path


class EveryRow(DataConfig):
    """Parts that may differ by a row, so that no row is left out: trees need no equal parts."""

    def configure(self, datasets: Mapping[str, Any], world_size: int, worker_handles: list[Any] | None = None,
                  worker_node_ids: list[str] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        """The datasets of each rank."""
        shards: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            split = self._datasets_to_split == "all" or name in self._datasets_to_split
            parts = dataset.streaming_split(world_size) if split else [dataset.iterator()] * world_size
            for rank, part in enumerate(parts):
                shards[rank][name] = part
        return shards


def check_classic(trainer: str, train_loop: Any, datasets: Any, label_column: Any, params: Any, more: Mapping[str, Any]) -> bool:
    """Whether a trainer was made the classic way, from columns and params; raises for half of each."""
    if train_loop is not None:
        given = [name for name, value in {"label_column": label_column, "params": params, **more}.items() if value is not None]
        if given:
            raise ValueError(f"{trainer} was given train_loop_per_worker and also {', '.join(given)}: these are for training without a function of your own")
        return False
    for name, value in (("label_column", label_column), ("params", params)):
        if value is None:
            raise ValueError(f"{trainer} needs a train_loop_per_worker, or label_column, params and datasets: {name} is missing")
    if not datasets:
        raise ValueError(f"{trainer}(label_column=..., params=...) needs datasets={{'train': ...}}; there is none")
    if "train" not in datasets:
        raise KeyError(f"{trainer}(label_column=..., params=...) needs datasets={{'train': ...}}; there is {', '.join(datasets)}")
    return True


class BoostingTrainer(DataParallelTrainer):
    """Runs a function of the user's, or, where label column and params say all, one of its own (the classic way).

    Parameters
    ----------
    classic : callable
        What each worker runs in the classic way. It takes the label column, the params, the rounds, the names of the datasets beside "train",
        the settings of checkpoints, and what the user has given for the library.
    rounds : int
        How many rounds, where the user does not say.
    """

    def __init__(self, classic: Callable[..., None], rounds: int, train_loop: Callable[..., Any] | None, *, label_column: str | None,
                 params: dict[str, Any] | None, num_boost_round: int | None, train_kwargs: dict[str, Any], run_config: Any, datasets: dict[str, Any] | None,
                 dataset_config: Any, validation_config: Any, **more: Any) -> None:
        name = type(self).__name__
        if validation_config is not None:
            raise NotImplementedError(f"{name}(validation_config=...) is not there yet in raygo")
        if check_classic(name, train_loop, datasets, label_column, params, {"num_boost_round": num_boost_round, **train_kwargs}):
            assert label_column is not None and params is not None
            train_loop = functools.partial(classic, label_column, dict(params), rounds if num_boost_round is None else num_boost_round,
                                           sorted(set(datasets or {}) - {"train"}), checkpoint_settings(run_config), train_kwargs)
            dataset_config = dataset_config or EveryRow(datasets_to_split=["train"])
            self._uses_checkpoint_settings = True
        assert train_loop is not None
        super().__init__(train_loop, run_config=run_config, datasets=datasets, dataset_config=dataset_config or EveryRow(), **more)


class BoosterCheckpoint(FrameworkCheckpoint):
    """A checkpoint with a booster in one file."""

    MODEL_FILENAME: str

    @classmethod
    def from_model(cls, booster: Any, *, preprocessor: Any = None, path: str | None = None) -> Self:
        """A checkpoint of a booster.

        Parameters
        ----------
        booster : xgboost.Booster or lightgbm.Booster
            The model.
        preprocessor : object, optional
            What prepares its inputs, for `get_preprocessor`.
        path : str, optional
            The folder; a new temporary one by default.
        """
        folder = path or tempfile.mkdtemp(prefix="checkpoint_")
        os.makedirs(folder, exist_ok=True)
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        made = cls(folder)
        made.keep_preprocessor(preprocessor)
        return made


def columns(shard: Any, label_column: str, name: str) -> tuple[pd.DataFrame, pd.Series]:
    """A worker's rows as features and labels."""
    frame = shard.materialize().to_pandas()
    if label_column not in frame.columns:
        raise ValueError(f"the dataset {name!r} has no column {label_column!r}; it has {', '.join(map(str, frame.columns)) or 'no row for this worker'}")
    return frame.drop(columns=label_column), frame[label_column]


def worker_cpus() -> int:
    """The threads that a worker may use."""
    import raygo

    return max(1, int(raygo.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def checkpoint_settings(run_config: Any) -> dict[str, Any]:
    """What a CheckpointConfig says to a classic trainer's callback."""
    config = getattr(run_config, "checkpoint_config", None)
    frequency = getattr(config, "checkpoint_frequency", None)
    at_end = getattr(config, "checkpoint_at_end", None)
    return {"frequency": frequency if isinstance(frequency, int) else 0, "checkpoint_at_end": at_end if isinstance(at_end, bool) else True}
