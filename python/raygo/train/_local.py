"""Training without workers, ``ScalingConfig(num_workers=0)``: the driver calls the training function itself, where a debugger sees it."""
from __future__ import annotations

import copy
import os
import threading
from typing import TYPE_CHECKING, Any

from raygo.train import _session
from raygo.train._messages import Ask, Brought, Mailbox, Place, Report
from raygo.train._worker_group import call

if TYPE_CHECKING:
    from raygo.train._run import Run


class Stopped(BaseException):
    """Ends a training function whose run is to stop: not an Exception, so that the function does not take it for an error."""


class Direct(Mailbox):
    """A mailbox that is read as soon as something is left in it.

    What fails then, as a callback does, is no error of the training function, which may well handle those of its own: it is kept in `error`,
    and ends the function.
    """

    def __init__(self, run: Run, first: int, session: LocalSession) -> None:
        self._run = run
        self._session = session
        self._next = first
        self.error: Exception | None = None
        self._said: dict[int, Report] = {}
        self._brought: dict[int, Brought] = {}
        self._reading = threading.RLock()        # files that are stored in the background come from another thread

    def put(self, message: Any) -> None:
        """Take a message in."""
        with self._reading:
            if isinstance(message, Report):
                message.metrics = copy.deepcopy(message.metrics)        # the loop may go on changing them
            if self.error is None:
                try:
                    self._take(message)
                except Exception as error:
                    self.error = error
            if self.error is not None:
                raise Stopped

    def _take(self, message: Any) -> None:
        if isinstance(message, Report):
            self._said[message.index] = message
        elif isinstance(message, Brought):
            self._brought[message.index] = message
        elif isinstance(message, Ask):
            self._session.answer(message.number, self._reply(message))
        while (said := self._said.get(self._next)) is not None and (not said.brings or self._next in self._brought):
            index, self._next = self._next, self._next + 1
            brought = self._brought.pop(index, None)
            self._run.record(index, {0: self._said.pop(index)}, {} if brought is None else {0: brought})

    def _reply(self, ask: Ask) -> Any:
        if ask.what == "get_checkpoint":
            return self._run.newest_checkpoint()
        if ask.what == "get_all_reported_checkpoints":
            if ask.value[1]:
                self._run.finish_validations()
            return self._run.kept_reports()
        return ask.value[1]        # of a group of one


class LocalSession(_session.Session):
    """The state of a training function that runs in the driver."""

    def __init__(self, run: Run, place: Place, first: int) -> None:
        super().__init__(place, run.storage, run.newest_checkpoint(), first)
        self._run = run
        self.mailbox: Direct = Direct(run, first, self)

    def report(self, *args: Any, **kwargs: Any) -> None:
        """See `Session.report`; a run that is to stop does not return from here."""
        super().report(*args, **kwargs)
        if self._run.stopped:
            raise Stopped

    def ask(self, what: str, value: Any = None, timeout: float | None = None) -> Any:
        """See `Session.ask`; files under way are stored first."""
        self._settle(0)
        return super().ask(what, value, timeout)


def train(run: Run, first: int) -> Any:
    """Calls the training function; what it returned."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise NotImplementedError("ScalingConfig(num_workers=0) under torchrun is not there in raygo: give the number of workers, and start the script itself")
    shards = {name: dataset.iterator() for name, dataset in run.datasets.items()}
    place = Place(0, 1, 0, 1, 0, run.scaling_config.as_placement_group_factory(), run.metadata, shards, run.validations.config is not None)
    before, session = _session.current, LocalSession(run, place, first)
    _session.current = session
    value = None
    try:
        try:
            with run.backend_config.train_func_context():
                value = call(run.train_loop, run.train_loop_config)
        finally:
            session.end()
    except BaseException as raised:
        if not isinstance(raised, Stopped) and session.mailbox.error is None:
            raise
        value = None
    finally:
        _session.current = before
    if session.mailbox.error is not None:
        raise session.mailbox.error
    return value
