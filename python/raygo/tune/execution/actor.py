"""A trial's process."""
from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raygo.train import Checkpoint
from raygo.train._files import explain_relative_path
from raygo.train.constants import TUNE_ORIG_WORKING_DIR
from raygo.tune.execution.session import persist
from raygo.tune.result import CHECKPOINT_DIR_NAME, DONE, RESULT_DUPLICATE, SHOULD_CHECKPOINT, STDERR_FILE, STDOUT_FILE
from raygo.tune.trainable import trainable as trainables
from raygo.tune.trainable.trainable import Trainable

if TYPE_CHECKING:
    from raygo.train._storage import StorageContext

__all__ = ["Common", "TrialActor", "TrialSetup"]


@dataclass
class Common:
    """What all trials of a search are told, once."""

    trainable: type[Trainable]
    storage: StorageContext
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    log_to_file: tuple[str, str] | None = None
    chdir: bool = True


class TrialSetup:
    """What a trial's process knows of its trial.

    Parameters
    ----------
    common : Common
        Of the search.
    config, resources
        Of the trial.
    folder, trial_id, trial_name : str
        The trial's folder in that of the search, and what it is called.
    next_checkpoint : int
        The number of its next checkpoint.
    checkpoint : Checkpoint, optional
        Where it starts from.
    counters : dict
        Where training_iteration and its kind go on.
    """

    def __init__(self, common: Common, config: dict[str, Any], resources: Any, folder: str, trial_id: str, trial_name: str, next_checkpoint: int,
                 checkpoint: Checkpoint | None, counters: dict[str, Any]) -> None:
        self.common, self.config, self.resources = common, config, resources
        self.checkpoint, self.counters = checkpoint, counters
        self.storage = copy.copy(common.storage)
        self.storage.trial_dir_name, self.storage.trial_id, self.storage.trial_name = folder, trial_id, trial_name
        self.storage.current_checkpoint_index = next_checkpoint

    @property
    def folder(self) -> str:
        """Where the trial may write to on its machine: its folder on the storage, if that is here."""
        return self.storage.trial_fs_path if self.storage.files.local else self.storage.trial_working_directory


class TrialActor:
    """The actor.  Its one thread serves the driver; a function that is tried runs in a second one."""

    def __init__(self) -> None:
        self._trainable: Trainable | None = None
        self._setup: TrialSetup
        self._home = os.getcwd()

    def start(self, common: Common, told: tuple[Any, ...]) -> tuple[int, str]:
        """Make the trial; pid and address."""
        setup = TrialSetup(common, *told)
        self._enter(setup)
        try:
            trainables.being_built = setup
            self._trainable = common.trainable(setup.config)
            self._go_on_from(setup)
        except BaseException as error:
            self._explain(error)
            raise
        return os.getpid(), self._trainable._local_ip

    def reset(self, told: tuple[Any, ...]) -> tuple[int, str] | None:
        """Make another trial of the same search; None if it cannot do that."""
        assert self._trainable is not None
        setup = TrialSetup(self._setup.common, *told)
        self._enter(setup)
        self._trainable._trial = trainables.being_built = setup
        if not self._trainable.reset(setup.config):
            return None
        self._go_on_from(setup)
        return os.getpid(), self._trainable._local_ip

    def train(self) -> dict[str, Any]:
        """The next result."""
        trainable = self._trainable
        assert trainable is not None
        try:
            result = trainable.train()
        except BaseException as error:
            self._explain(error)
            raise
        if self._due(result):
            result[CHECKPOINT_DIR_NAME] = self.save()
        result.pop("config", None)        # the driver has it
        return result

    def _due(self, result: dict[str, Any]) -> bool:
        if result.get(RESULT_DUPLICATE) or result.get(CHECKPOINT_DIR_NAME):
            return False
        if result.pop(SHOULD_CHECKPOINT, False) or (self._setup.common.checkpoint_at_end and result.get(DONE)):
            return True
        every = self._setup.common.checkpoint_frequency
        return every > 0 and self._trainable is not None and self._trainable.iteration % every == 0

    def save(self) -> str:
        """A checkpoint of a class; its name."""
        import tempfile

        assert self._trainable is not None
        with tempfile.TemporaryDirectory(prefix="checkpoint_") as folder:
            self._trainable.save(folder)
            return persist(self._setup.storage, Checkpoint(folder)).path.rsplit("/", 1)[-1]

    def export(self, formats: list[str]) -> Any:
        """See `Trainable.export_model`."""
        assert self._trainable is not None
        return self._trainable.export_model(formats)

    def stop(self) -> None:
        """End the trial: what it wants to clean up, it can."""
        if self._trainable is not None:
            self._trainable.stop()

    def _enter(self, setup: TrialSetup) -> None:
        self._setup = setup
        folder = setup.folder
        os.makedirs(folder, exist_ok=True)
        os.environ.setdefault(TUNE_ORIG_WORKING_DIR, self._home)
        if setup.common.chdir:
            os.chdir(folder)
        if setup.common.log_to_file is not None:
            from raygo.tune.utils.util import Tee

            for stream, file, default in (("stdout", setup.common.log_to_file[0], STDOUT_FILE), ("stderr", setup.common.log_to_file[1], STDERR_FILE)):
                copy = open(os.path.join(folder, file or default), "a", buffering=1)
                if isinstance(tee := getattr(sys, stream), Tee):        # of the trial before; handlers of logging may hold it
                    tee.stream2, copy = copy, tee.stream2
                    copy.close()
                else:
                    setattr(sys, stream, Tee(getattr(sys, f"__{stream}__"), copy))

    def _go_on_from(self, setup: TrialSetup) -> None:
        assert self._trainable is not None
        if setup.checkpoint is not None:
            self._trainable.restore(setup.checkpoint)
            if setup.counters:
                self._trainable._resume_counters(setup.counters)

    def _explain(self, error: BaseException) -> None:
        """A relative path that was meant from where the driver runs: say so."""
        if self._setup.common.chdir:
            explain_relative_path(error, os.environ.get(TUNE_ORIG_WORKING_DIR, self._home))
