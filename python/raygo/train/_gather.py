"""Takes what the ranks of one attempt say, until all have ended or one has failed.

Report k is complete when every rank that still trains has made it and the files that it brings are on the storage.  A rank that has never
reported is given a patience, then named in a warning and no longer waited for, as a loop may well report on one rank only.  One that has
reported before is waited for as long as it takes, as it may be writing a large checkpoint; and so are files under way.
"""
from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import raygo
from raygo.train._failures import WorkersFailed, weight
from raygo.train._messages import Ask, Brought, Report, read_journal
from raygo.train._worker_group import WorkerGroup
from raygo.train.constants import REPORT_PATIENCE_S_ENV
from raygo.train.error import SessionMisuseError

if TYPE_CHECKING:
    from raygo.train._run import Run

log = logging.getLogger("raygo.train")
# How long the others are listened to after the first error: when that is the cause, and when it may be the consequence of another.
_SETTLE_S = {0: 0.4, 1: 0.4, 2: 5.0}
# How long they are listened to while files are on their way, or reports keep coming that the failed rank had made.
_GRACE_S = 10.0
# How long an interrupted driver waits for reports that are nearly there.
_RESCUE_S = 1.0
_SAY_AFTER_S = 10.0
# How long get_checkpoint waits for the other ranks' part in a checkpoint that the rank which asks has brought: those that report with it are
# about to, and those that do not may wait for this one themselves.
_OTHERS_S = 2.0


@dataclass
class Pending:
    """A report that some ranks have made."""

    since: float
    said: dict[int, Report] = field(default_factory=dict)
    brought: dict[int, Brought] = field(default_factory=dict)
    warned: bool = False

    def under_way(self) -> set[int]:
        """The ranks whose files are not on the storage yet."""
        return {rank for rank, report in self.said.items() if report.brings and rank not in self.brought}

    def contributors(self) -> set[int]:
        """The ranks that brought a checkpoint; none where one of them failed, as it is not whole then."""
        return set() if any(brought.failed for brought in self.brought.values()) else set(self.brought)


class Gather:
    """One attempt's ears."""

    def __init__(self, run: Run, group: WorkerGroup, runs: list[Any], first: int, journals: list[str]) -> None:
        self.run_of = run
        self.group = group
        self.size = len(runs)
        self.first = self.next_index = first
        self.journals = journals
        self.pending: dict[int, Pending] = {}
        self.reached = [first] * self.size    # by rank: the report that it makes next
        self.values: list[Any] = [None] * self.size
        self.errors: dict[int, Exception] = {}
        self.returned: set[int] = set()       # the function came to its end
        self.drained: set[int] = set()        # all reports are here
        self.heard = 0                        # messages so far
        self.questions: list[tuple[int, Ask]] = []
        self.waiting: dict[Any, tuple[str, int]] = {ref: ("run", rank) for rank, ref in enumerate(runs)}
        for rank in range(self.size):
            self._listen(rank)

    def _listen(self, rank: int) -> None:
        self.waiting[self.group.workers[rank].actor.next_messages.remote()] = ("messages", rank)

    def run(self) -> list[Any]:
        """What the ranks' functions returned.

        Raises
        ------
        WorkersFailed
            With all that was reported before it taken in.
        """
        with self._rescued():
            give_up: float | None = None
            end, heard = 0.0, 0
            while self.waiting and not self.run_of.stopped:
                left = self._step(give_up)
                if left is not None and left <= 0:
                    if time.monotonic() >= end or not self._is_something_coming(heard):
                        break
                    give_up, heard = time.monotonic() + _SETTLE_S[0], self.heard
                if self.errors and give_up is None or (give_up is not None and self._cause_is_known()):
                    if not end:
                        end, heard = time.monotonic() + _GRACE_S, self.heard
                    settle = time.monotonic() + _SETTLE_S[min(map(weight, self.errors.values()))]
                    give_up = settle if give_up is None else min(give_up, settle)
            if self.errors:
                self._salvage()
                raise WorkersFailed(self.errors, [worker.metadata.pid for worker in self.group.workers]) from next(iter(self.errors.values()))
        return self.values

    def _is_something_coming(self, heard: int) -> bool:
        """Whether a report that the failed ranks have made may still become whole: a rank that is behind stores files, or goes on reporting."""
        failed = set(self.errors) - self.run_of.warned
        made = [pending for pending in self.pending.values() if failed <= set(pending.said)]
        return any(pending.under_way() - failed for pending in made) or bool(made and failed) and self.heard > heard

    def _cause_is_known(self) -> bool:
        return min(map(weight, self.errors.values())) < 2

    def _step(self, give_up: float | None) -> float | None:
        """Takes what has come, waiting for it for a while; how long is left of `give_up`."""
        validations = self.run_of.validations
        left = None if give_up is None else give_up - time.monotonic()
        if left is not None and left <= 0:
            return left
        waits = [w for w in (left, self._patience_left(), validations.patience(), self._question_left()) if w is not None]
        ready, _ = raygo.wait([*self.waiting, *validations.running], num_returns=1, timeout=min(waits) if waits else None)
        for ref in ready:
            if ref in validations.running:
                self.run_of.validated(ref)
            else:
                self._see(*self.waiting.pop(ref), ref)
        self.run_of.expire_validations()
        self._complete()
        self._answer()
        return left

    def _see(self, kind: str, rank: int, ref: Any) -> None:
        try:
            value = raygo.get(ref)
        except Exception as error:
            self.errors.setdefault(rank, error)
            return
        if kind == "run":
            self.values[rank] = value
            self.returned.add(rank)
            return
        for data in value:
            if data is None:
                self.drained.add(rank)
                return
            try:
                message = pickle.loads(data)
            except Exception as error:
                self.errors.setdefault(rank, unreadable(rank, error))
                return
            self._take(rank, message)
        self._listen(rank)

    def _take(self, rank: int, message: Any) -> None:
        self.heard += 1
        if isinstance(message, Ask):
            message.heard = time.monotonic()
            self.questions.append((rank, message))
        elif message.index < self.next_index:
            if isinstance(message, Brought):
                self.run_of.late(message)
            elif isinstance(message, Report):
                self._reports(rank)
                self.reached[rank] = max(self.reached[rank], message.index + 1)
        else:
            pending = self.pending.setdefault(message.index, Pending(time.monotonic()))
            if isinstance(message, Report):
                pending.said[rank] = message
                self._reports(rank)
                self.reached[rank] = max(self.reached[rank], message.index + 1)
            else:
                pending.brought[rank] = message

    def _reports(self, rank: int) -> None:
        self.run_of.reporters.add(rank)
        self.run_of.warned.discard(rank)

    def _absent(self, pending: Pending) -> set[int]:
        return {rank for rank in range(self.size) if rank not in pending.said and rank not in self.returned & self.drained}

    def _complete(self) -> None:
        while not self.run_of.stopped and (pending := self.pending.get(self.next_index)) is not None and pending.said:
            absent = self._absent(pending)
            if pending.under_way() or (absent & self.run_of.reporters and not self.errors):
                self._say_what_is_waited_for(pending, absent & self.run_of.reporters)
                return
            if absent and not absent <= self.run_of.warned:
                if time.monotonic() - pending.since < self.run_of.patience:
                    return
                fresh = sorted(absent - self.run_of.warned)
                self.run_of.warned |= set(fresh)
                warnings.warn(f"rank(s) {', '.join(map(str, fresh))} did not call report() within {self.run_of.patience:g} s of the others "
                              f"(report {self.next_index + 1}) and are not waited for any more. Each worker should report; "
                              f"{REPORT_PATIENCE_S_ENV} says how long to wait.", stacklevel=4)
            self._record(pending)

    def _record(self, pending: Pending) -> None:
        del self.pending[self.next_index]
        index, self.next_index = self.next_index, self.next_index + 1
        if contributors := pending.contributors():
            self.run_of.contributors = (self.size, contributors)
        self.run_of.record(index, pending.said, pending.brought)

    def _say_what_is_waited_for(self, pending: Pending, absent: set[int]) -> None:
        if pending.warned or time.monotonic() - pending.since <= _SAY_AFTER_S:
            return
        pending.warned = True
        if absent:
            log.warning("report %d waits for rank(s) %s, which reported before", self.next_index + 1, ", ".join(map(str, sorted(absent))))
        else:
            log.warning("report %d waits for the files of rank(s) %s to be stored in %s", self.next_index + 1,
                        ", ".join(map(str, sorted(pending.under_way()))), self.run_of.storage.trial_fs_path)

    def _patience_left(self) -> float | None:
        pending = self.pending.get(self.next_index)
        if pending is None or not pending.said:
            return None
        if pending.under_way() or self._absent(pending) & self.run_of.reporters:
            return None if pending.warned else _SAY_AFTER_S
        return max(0.0, self.run_of.patience - (time.monotonic() - pending.since)) + 0.01

    # After a failure.

    @contextlib.contextmanager
    def _rescued(self) -> Iterator[None]:
        """When the driver is interrupted, what is nearly there is taken in."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            end = time.monotonic() + _RESCUE_S
            while self.pending and self.waiting and (self._step(end) or 0) > 0:
                pass
            self._salvage()
            raise

    def _salvage(self) -> None:
        """Takes in what was reported before the end, up to the last checkpoint that is whole."""
        # Not of the dead alone: on a busy machine what the others said may be on its way still.
        for rank, journal in enumerate(self.journals):
            for message in read_journal(journal):
                # Of older reports it may have some that are here already.
                if not isinstance(message, Ask) and message.index >= self.next_index:
                    self._take(rank, message)
        self._complete()
        whole = [index for index, pending in self.pending.items() if index >= self.next_index and self._is_whole(pending)]
        while whole and self.next_index <= max(whole):
            pending = self.pending.get(self.next_index)
            if pending is not None and pending.said:
                if pending.under_way():
                    pending.brought.clear()
                self._record(pending)
            else:
                self.next_index += 1

    def _is_whole(self, pending: Pending) -> bool:
        """Whether the ranks that failed had made this report, and all that bring files have brought them.

        Which bring files, an earlier report of this group has shown.
        """
        brought = pending.contributors()
        if not brought or pending.under_way() or not set(self.errors) - self.run_of.warned <= set(pending.said):
            return False
        size, known = self.run_of.contributors
        return brought >= known if size == self.size and known else len(pending.said) == self.size

    # Questions.

    def _question_left(self) -> float | None:
        heard = [ask.heard for _, ask in self.questions if ask.what == "get_checkpoint"]
        return max(0.0, min(heard) + _OTHERS_S - time.monotonic()) + 0.01 if heard else None

    def _answer(self) -> None:
        left = []
        for rank, ask in self.questions:
            known, answer = self._reply(rank, ask)
            if known:
                self.group.workers[rank].actor.answer.remote(ask.number, answer)
            else:
                left.append((rank, ask))
        self.questions = left

    def _reply(self, rank: int, ask: Ask) -> tuple[bool, Any]:
        if ask.what == "get_all_reported_checkpoints":
            upto, validated = ask.value
            done = self.next_index >= upto and not (validated and self.run_of.validations.running)
            return done, self.run_of.kept_reports() if done else None
        if ask.what == "get_checkpoint":
            own = [brought for _, pending in sorted(self.pending.items()) if (brought := pending.brought.get(rank)) is not None and not brought.failed]
            done = not own or own[-1].in_place is not None or time.monotonic() >= ask.heard + _OTHERS_S
            return done, (own[-1].in_place if own else None) or self.run_of.newest_checkpoint()
        # Collectives: the n-th of each rank belong together.
        same = {rank: other.value[1] for rank, other in self.questions if other.what == ask.what and other.value[0] == ask.value[0]}
        gone = self.returned | set(self.errors)
        if missing := gone - set(same):
            return True, SessionMisuseError(f"{ask.what}: rank(s) {', '.join(map(str, sorted(missing)))} have ended without calling it")
        return len(same) == self.size, same.get(0)


def unreadable(rank: int, error: Exception) -> SessionMisuseError:
    """A report that the driver cannot unpickle."""
    made = SessionMisuseError(f"what rank {rank} reported cannot be read in the driver: {type(error).__name__}: {error}. Report numbers, text, lists and "
                              "dicts of them, or objects of classes that the driver can import too")
    made.__cause__ = error
    return made


def journal_folder(session_dir: str, run: str) -> str | None:
    """Where the workers of this machine keep their journals; None without a session folder."""
    if not session_dir or not os.path.isdir(session_dir):
        return None
    folder = os.path.join(session_dir, "train", run)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder
