"""What an operation of the torch backend gives its caller to wait for."""
from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from raygo import _binding, _step_profile
from raygo.util.collective._trace import Span


class Started(Work):
    """One or several calls of a group that run by themselves.

    The group's thread calls `part_ended` after each; what is left to do after the last (`finish`: copies into tensors that are not contiguous) it does
    then, so that a future that is ready has its values.  Futures are completed elsewhere (`elsewhere`): callbacks may wait for further operations of the
    group, which its thread is there to run.
    """

    def __init__(self, result: list[Any], elsewhere: Callable[..., Any], parts: int = 1) -> None:
        super().__init__()
        self._elsewhere = elsewhere
        self.outcome = result
        self.finish: list[Callable[[], None]] = []
        self.spans: list[Span] = []
        self._handles: list[_binding.Work] = []
        self._left = parts
        self._lock = threading.Lock()
        self._trouble: BaseException | None = None
        self._settled: torch.futures.Future[Any] | None = None
        self._future: torch.futures.Future[Any] | None = None
        self.source = -1
        _step_profile.current.begin()

    def one_more(self) -> None:
        """Another call is about to be started."""
        with self._lock:
            self._left += 1

    def add(self, handle: _binding.Work) -> None:
        """Note a call that has been started; all are there before anybody else sees this object."""
        self._handles.append(handle)

    def part_ended(self) -> None:
        """A call has ended; on a thread of the group's."""
        with self._lock:
            self._left -= 1
            if self._left:
                return
        _step_profile.current.end()
        try:
            for function in self.finish:
                function()
        except Exception as error:
            self._trouble = error
        self.finish.clear()
        for span in self.spans:
            span.ended = time.time_ns()
        with self._lock:
            waiting = self._settled
        if waiting is not None:
            self._elsewhere(waiting.set_result, None)

    # ---- what torch calls

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until all has ended, or raise what it ended with."""
        seconds = timeout.total_seconds() if timeout else None      # no time at all is torch's word for no limit
        for handle in self._handles:
            self.source = handle.wait(seconds)
        if self._trouble is not None:
            raise self._trouble
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the list of tensors that the operation has filled."""
        if getattr(_asked, "waits", False):
            _asked.work = self      # nobody would take it else, and it holds the tensors
        with self._lock:
            if self._future is None:
                # A future that was given an exception raises it in Python only; one whose callback raised is a failed one in C++ too, which is where
                # DistributedDataParallel waits.
                self._settled = torch.futures.Future()
                self._future = self._settled.then(self._value)
                ended = not self._left
            else:
                ended = False
            future, settled = self._future, self._settled
        if ended and settled is not None:
            settled.set_result(None)
        return future

    def _value(self, _: Any) -> list[Any]:
        error = self.exception()
        if error is not None:
            raise error
        return self.outcome

    def is_completed(self) -> bool:
        """Whether nothing is under way any more."""
        return not self._left

    def is_success(self) -> bool:
        """Whether it has ended, and well."""
        return not self._left and self.exception() is None

    def exception(self) -> BaseException | None:
        """What it failed with; None before its end."""
        if self._left:
            return None
        return self._trouble or next((error for handle in self._handles if (error := handle.exception()) is not None), None)

    def result(self) -> list[Any]:
        """The tensors, once it has ended."""
        self.wait()
        return self.outcome

    def _source_rank(self) -> int:
        return self.source


_asked = threading.local()


def _behind(work: Any) -> Started | None:
    """The object behind what torch handed out for it."""
    _asked.work, _asked.waits = None, True
    try:
        work.get_future()
    except RuntimeError:
        return None     # another backend's, without futures
    finally:
        found, _asked.work, _asked.waits = _asked.work, None, False
    return found


def let_torch_ask() -> None:
    """Have torch's own handles answer for ours.

    What a backend in Python returns reaches its caller in a holder of torch's that passes on `wait` and `get_future` only: to whether it has ended the holder
    says always no, and where a message came from it cannot say (torch 2.15).  A future leads from the holder to the work.
    """
    if getattr(Work.is_completed, "raygo", False):
        return

    def forward(name: str, ask_first: bool) -> None:
        original = getattr(Work, name)

        @functools.wraps(original)
        def method(self: Any) -> Any:
            if ask_first and (answer := original(self)):
                return answer
            ours = _behind(self)
            return original(self) if ours is None else getattr(ours, name)()

        method.raygo = True  # type: ignore[attr-defined]
        setattr(Work, name, method)

    forward("is_completed", True)
    forward("is_success", True)
    forward("exception", True)
    forward("_source_rank", False)
