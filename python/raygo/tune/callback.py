"""Hooks into a search, called in the driver."""
from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raygo.train import Checkpoint
    from raygo.tune.experiment import Trial

__all__ = ["Callback", "CallbackList"]


class Callback:
    """Subclass it and give an instance to ``RunConfig(callbacks=[...])``.

    `iteration` counts the rounds of the search, `trials` are all trials so far, `trial` is the one that the hook is about.

    Examples
    --------
    >>> class Watch(Callback):
    ...     def on_trial_result(self, iteration, trials, trial, result, **info):
    ...         print(trial, result["loss"])
    """

    def setup(self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any) -> None:
        """Before the first trial."""

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Before the driver takes the next event."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """After the driver took an event."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The trial's process was asked to start."""

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The trial goes on from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The trial has a new checkpoint; before `on_checkpoint`."""

    def on_trial_result(self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """The trial has reported."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The trial has ended well, or was stopped."""

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The trial has failed and will be tried again."""

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The trial has failed for good."""

    def on_checkpoint(self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        """The trial's checkpoint is on the storage."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """After the last trial."""

    def get_state(self) -> dict[str, Any] | None:
        """What a restored search gives to `set_state`; None if there is nothing to keep."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up what `get_state` gave."""


_HOOKS = [name for name in vars(Callback) if name == "setup" or name.startswith("on_")]


class CallbackList(Callback):
    """Several callbacks as one.  A hook that no callback has costs nothing.

    Parameters
    ----------
    callbacks : list of Callback
        Called in this order.
    """

    IS_CALLBACK_CONTAINER = True
    CKPT_FILE_TMPL = "callback-states-{}.pkl"

    def __init__(self, callbacks: list[Callback]) -> None:
        self._callbacks = list(callbacks)
        for hook in _HOOKS:
            own = [getattr(c, hook) for c in self._callbacks if getattr(type(c), hook, None) is not getattr(Callback, hook)]
            setattr(self, hook, _all_of(own))

    def __len__(self) -> int:
        return len(self._callbacks)

    def __getitem__(self, i: int) -> Callback:
        return self._callbacks[i]

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._callbacks)

    def get_state(self) -> dict[str, Any] | None:
        """States by position."""
        states = {i: state for i, c in enumerate(self._callbacks) if (state := c.get_state()) is not None}
        return states or None       # type: ignore[return-value]

    def set_state(self, state: dict[str, Any]) -> None:
        """Give each its own."""
        for i, one in state.items():
            if int(i) < len(self._callbacks):
                self._callbacks[int(i)].set_state(one)

    def can_restore(self, checkpoint_dir: str) -> bool:
        """Whether states were saved in the folder."""
        return bool(self._files(checkpoint_dir))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Write the states, in the place of those of the same session."""
        state = self.get_state()
        if state is None:
            return
        from raygo import cloudpickle

        path = os.path.join(checkpoint_dir, self.CKPT_FILE_TMPL.format(session_str))
        with open(path + ".tmp", "wb") as file:
            file.write(cloudpickle.dumps(state))
        os.replace(path + ".tmp", path)

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Read the newest states."""
        files = self._files(checkpoint_dir)
        if not files:
            raise RuntimeError(f"no states of callbacks in {checkpoint_dir}")
        from raygo import cloudpickle

        with open(max(files, key=os.path.getmtime), "rb") as file:
            self.set_state(cloudpickle.loads(file.read()))

    def _files(self, folder: str) -> list[str]:
        return glob.glob(os.path.join(glob.escape(folder), self.CKPT_FILE_TMPL.format("*")))


def _all_of(hooks: list[Any]) -> Any:
    if len(hooks) == 1:
        return hooks[0]

    def call(*args: Any, **kwargs: Any) -> None:
        for hook in hooks:
            hook(*args, **kwargs)

    return call
