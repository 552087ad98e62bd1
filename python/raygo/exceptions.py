"""What goes wrong, as exceptions.

::

    RayError
    ├── RayTaskError                        the task's own code raised; also an instance of what it raised
    ├── TaskCancelledError
    ├── WorkerCrashedError                  the process died: its signal or exit code, the end of its stderr
    ├── OutOfMemoryError
    ├── NodeDiedError
    ├── LocalRayletDiedError
    ├── RayActorError
    │   ├── ActorDiedError                  for good
    │   └── ActorUnavailableError           it is being restarted
    ├── ActorAlreadyExistsError             (ValueError)
    ├── ActorHandleNotFoundError            (ValueError)
    ├── TaskUnschedulableError              no node can ever meet the demand
    ├── ActorUnschedulableError
    ├── TaskPlacementGroupRemoved
    ├── ActorPlacementGroupRemoved
    ├── PendingCallsLimitExceeded
    ├── GetTimeoutError                     (TimeoutError) says what the wait was for
    ├── DeadlockError                       raygo's own: the wait is part of a cycle
    ├── RuntimeEnvSetupError
    ├── ObjectStoreFullError
    ├── OutOfDiskError
    ├── ObjectLostError
    │   ├── ObjectFetchTimedOutError
    │   ├── ObjectFreedError
    │   ├── ObjectReconstructionFailedError lost, and its task cannot run again: ``reason``
    │   ├── OwnerDiedError                  the actor that put it is dead
    │   └── ReferenceCountingAssertionError (AssertionError)
    ├── RaySystemError                      raygo's own fault, or its engine is gone
    │   ├── RayChannelError
    │   │   └── RayChannelTimeoutError      (TimeoutError)
    │   ├── RayCgraphCapacityExceeded
    │   ├── RayDirectTransportError
    │   └── StreamingGeneratorReplayInconsistentError
    ├── ObjectRefStreamEndOfStreamError
    ├── OufOfBandObjectRefSerializationException
    ├── PlasmaObjectNotAvailable
    ├── UnserializableException             stands for an exception that could not be pickled
    ├── UserCodeException
    ├── CrossLanguageError
    ├── AsyncioActorExit
    ├── AuthenticationError
    └── RpcError

How causes of the engine become these, and how a remote exception travels, is in ``_remote_error.py``.
"""

from __future__ import annotations

import os
from typing import Any

from raygo._remote_error import dual_instance, make_error, raise_syserr, rebuild_task_error, reduce_task_error, task_error, task_exit

__all__ = [
    "ActorAlreadyExistsError",
    "ActorDiedError",
    "ActorHandleNotFoundError",
    "ActorPlacementGroupRemoved",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "AsyncioActorExit",
    "AuthenticationError",
    "CrossLanguageError",
    "DeadlockError",
    "GetTimeoutError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectFetchTimedOutError",
    "ObjectFreedError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ObjectRefStreamEndOfStreamError",
    "ObjectStoreFullError",
    "OufOfBandObjectRefSerializationException",
    "OutOfDiskError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "PendingCallsLimitExceeded",
    "PlasmaObjectNotAvailable",
    "RAY_EXCEPTION_TYPES",
    "RayActorError",
    "RayCgraphCapacityExceeded",
    "RayChannelError",
    "RayChannelTimeoutError",
    "RayDirectTransportError",
    "RayError",
    "RaySystemError",
    "RayTaskError",
    "ReferenceCountingAssertionError",
    "RpcError",
    "RuntimeEnvSetupError",
    "StreamingGeneratorReplayInconsistentError",
    "TaskCancelledError",
    "TaskPlacementGroupRemoved",
    "TaskUnschedulableError",
    "UnserializableException",
    "UserCodeException",
    "WorkerCrashedError",
    "make_error",
    "raise_syserr",
    "rebuild_task_error",
    "task_error",
    "task_exit",
]


class RayError(Exception):
    """The root of everything raygo raises of its own accord."""

    def to_bytes(self) -> bytes:
        """Pickle this exception."""
        from raygo import cloudpickle

        return bytes(cloudpickle.dumps(self))

    @staticmethod
    def from_bytes(b: bytes) -> BaseException:
        """Read back what `to_bytes` wrote.

        Raises
        ------
        RuntimeError
            The bytes do not hold an exception that this process can rebuild.
        """
        import pickle

        try:
            value = pickle.loads(b)
        except Exception as error:
            raise RuntimeError("Failed to unpickle serialized exception") from error
        if not isinstance(value, BaseException):
            raise RuntimeError(f"Failed to unpickle serialized exception: the bytes hold a {type(value).__name__}")
        return value

    @staticmethod
    def from_ray_exception(ray_exception: Any) -> BaseException:
        """Rebuild an exception from a record with ``language``, ``serialized_exception`` and ``formatted_exception_string``."""
        from raygo._ids import Language

        if ray_exception.language in (Language.PYTHON, Language.PYTHON.value()):
            return RayError.from_bytes(ray_exception.serialized_exception)
        return CrossLanguageError(ray_exception)


class CrossLanguageError(RayError):
    """Code of another language failed."""

    def __init__(self, ray_exception: Any) -> None:
        language = getattr(ray_exception, "language", "another language")
        text = getattr(ray_exception, "formatted_exception_string", ray_exception)
        super().__init__(f"An exception raised from {language}:\n{text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _plain, (type(self), self.args)


class TaskCancelledError(RayError):
    """The task was ended by `raygo.cancel`, or one that it needs was."""

    def __init__(self, task_id: Any = None, error_message: str | None = None) -> None:
        super().__init__(task_id, error_message)
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        if self.error_message:
            return str(self.error_message)
        if self.task_id is None:
            return "This task or its dependency was cancelled."
        return f"Task: {self.task_id} was cancelled."


class RayTaskError(RayError):
    """The task's own code raised.

    What `raygo.get` raises is an instance of this class and of the type of `cause`, and prints as the remote traceback.

    Attributes
    ----------
    cause : BaseException
        The exception as the task raised it.
    function_name, traceback_str, proctitle, pid, ip, actor_repr, actor_id
        Where it happened.
    """

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException | None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: Any = None,
    ) -> None:
        super().__init__(function_name, traceback_str, cause, proctitle, pid, ip)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle or f"raygo::{function_name}"
        self.pid = pid or os.getpid()
        self.ip = ip or "127.0.0.1"
        self.actor_repr = actor_repr
        self.actor_id = actor_id

    def as_instanceof_cause(self) -> RayTaskError:
        """Give this error as an instance of the cause's type too; itself where no such type can be made."""
        return self.make_dual_exception_instance()

    def make_dual_exception_instance(self) -> RayTaskError:
        """As `as_instanceof_cause`."""
        return dual_instance(self)

    def __str__(self) -> str:
        where = f"{self.proctitle}() (pid={self.pid}, ip={self.ip}"
        if self.actor_id:
            where += f", actor_id={self.actor_id}"
        if self.actor_repr:
            where += f", repr={self.actor_repr}"
        text = self.traceback_str.strip("\n")
        head, _, rest = text.partition("\n")
        return f"{where})\n{rest if head.startswith('Traceback (most recent call last)') else text}"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_task_error(self)


class LocalRayletDiedError(RayError):
    """The node engine that ran the task is gone."""

    def __str__(self) -> str:
        return super().__str__() or "The node engine that ran this task ended. The session folder holds its log."


class WorkerCrashedError(RayError):
    """The worker process died while it ran the task."""

    def __str__(self) -> str:
        return super().__str__() or "The worker died unexpectedly while executing this task."


class OutOfMemoryError(RayError):
    """The machine ran short of memory and the task was ended to save the rest."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NodeDiedError(RayError):
    """The node of the task or actor died."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RayActorError(RayError):
    """The actor could not finish a call.

    Attributes
    ----------
    actor_id : str or None
        Hexadecimal.
    """

    BASE_ERROR_MSG = "The actor experienced an error before finishing this task."

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str = BASE_ERROR_MSG,
        actor_init_failed: bool = False,
        preempted: bool = False,
    ) -> None:
        super().__init__(actor_id, error_msg, actor_init_failed, preempted)
        self.actor_id = actor_id
        self.error_msg = error_msg
        self._actor_init_failed = actor_init_failed
        self._preempted = preempted

    def __str__(self) -> str:
        return self.error_msg

    @property
    def actor_init_failed(self) -> bool:
        """Whether the constructor raised."""
        return self._actor_init_failed

    @property
    def preempted(self) -> bool:
        """Whether the actor's node was taken away."""
        return self._preempted


class ActorDiedError(RayActorError):
    """The actor is dead and will not come back.

    Parameters
    ----------
    cause : RayTaskError, str or mapping, optional
        What the constructor raised; or the engine's account: text, or a mapping with ``message``, ``actor_id``, ``class_name``, ``pid``, ``name``,
        ``namespace``, ``preempted``.
    """

    BASE_ERROR_MSG = "The actor died unexpectedly before finishing this task."

    def __init__(self, cause: Any = None) -> None:
        actor_id: str | None = None
        failed = preempted = False
        if not cause:
            text = self.BASE_ERROR_MSG
        elif isinstance(cause, RayTaskError):
            failed = True
            actor_id = cause.actor_id
            text = f"The actor died because of an error raised in its creation task, {cause}"
        elif isinstance(cause, dict):
            actor_id = cause.get("actor_id")
            preempted = bool(cause.get("preempted"))
            lines = [self.BASE_ERROR_MSG]
            lines += [f"\t{key}: {cause[key]}" for key in ("class_name", "actor_id", "pid", "name", "namespace") if cause.get(key)]
            text = "\n".join([*lines, str(cause.get("message", ""))]).rstrip()
        else:
            text = str(cause)
        super().__init__(actor_id, text, failed, preempted)
        self.args = (cause,)

    @staticmethod
    def from_task_error(task_error: RayTaskError) -> ActorDiedError:
        """The error of an actor whose constructor raised."""
        return ActorDiedError(task_error)


class ActorUnavailableError(RayActorError):
    """The actor died during this call and is being restarted; the call may have had an effect."""

    BASE_ERROR_MSG = "The actor is temporarily unavailable."

    def __init__(self, error_message: str, actor_id: str | bytes | None) -> None:
        hex_id = actor_id.hex() if isinstance(actor_id, bytes) else actor_id
        super().__init__(hex_id, error_message or self.BASE_ERROR_MSG)
        self.args = (error_message, hex_id)


class _Message(RayError):
    """Carries one text under the attribute that Ray gives it."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message


class ActorAlreadyExistsError(_Message, ValueError):
    """The name is taken by another live actor."""


class ActorHandleNotFoundError(_Message, ValueError):
    """There is no such actor in this session."""


class TaskUnschedulableError(_Message):
    """No node can ever meet the task's demand."""

    def __str__(self) -> str:
        return f"The task is not schedulable: {self.error_message}"


class ActorUnschedulableError(_Message):
    """No node can ever meet the actor's demand."""

    def __str__(self) -> str:
        return f"The actor is not schedulable: {self.error_message}"


class TaskPlacementGroupRemoved(RayError):
    """The placement group of the task was removed before it ended."""

    def __str__(self) -> str:
        return super().__str__() or "The placement group corresponding to this task has been removed."


class ActorPlacementGroupRemoved(RayError):
    """The placement group of the actor was removed."""

    def __str__(self) -> str:
        return super().__str__() or "The placement group corresponding to this Actor has been removed."


class PendingCallsLimitExceeded(RayError):
    """The handle has ``max_pending_calls`` calls that have not ended."""


class GetTimeoutError(RayError, TimeoutError):
    """The deadline of `raygo.get` passed first; the text says what it waited for."""


class DeadlockError(RayError):
    """The wait would never end: what it waits for waits for the waiter."""


class RuntimeEnvSetupError(RayError):
    """The runtime environment could not be built."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return "Failed to set up runtime environment." + (f"\n{self.error_message}" if self.error_message else "")


class ObjectStoreFullError(RayError):
    """The object does not fit into the store, not even after spilling."""

    def __str__(self) -> str:
        return super().__str__() or "The object store is full of objects that are still in use; `raygo memory` lists them."


class OutOfDiskError(RayError):
    """The folders to spill to are full."""

    def __str__(self) -> str:
        return super().__str__() or "The object store's spill folders are full."


class ObjectLostError(RayError):
    """No copy of the object is left.

    Parameters
    ----------
    object_ref_hex : str
        The object's id, hexadecimal.
    owner_address, call_site : str
        Who owned it and where the reference was made, when known.
    message : str, optional
        The engine's account, in place of the general one.
    """

    _WHY = "All copies of the object have been lost."

    def __init__(self, object_ref_hex: str, owner_address: Any, call_site: str, message: str | None = None) -> None:
        super().__init__(object_ref_hex, owner_address, call_site, message)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site
        self.message = message

    def __str__(self) -> str:
        text = f"Failed to retrieve object {self.object_ref_hex}. "
        if self.call_site:
            text += f"The ObjectRef was created at: {self.call_site}. "
        return text + (self.message or self._WHY)


class ObjectFetchTimedOutError(ObjectLostError):
    """No node answered with a copy of the object in time."""

    _WHY = "Fetching it timed out because no node has it."


class ObjectFreedError(ObjectLostError):
    """The object was freed by hand while a reference to it was left."""

    _WHY = "The object was manually freed although references to it are left."


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was freed while a reference to it was left."""

    _WHY = "It was freed already: this reference came from outside the session's reference counting (for example from from_binary)."


class OwnerDiedError(ObjectLostError):
    """The actor that put the object is dead."""

    _WHY = "The actor that put the object has died, and its objects with it. Put long-lived values from the driver, or return them from a task."


class ObjectReconstructionFailedError(ObjectLostError):
    """The object was lost, and running its task again was not possible.

    Parameters
    ----------
    object_ref_hex : str
        The object's id, hexadecimal.
    reason : int, optional
        Why, by Ray's numbers (``REASON_MESSAGES`` has them); None or 0 for what Ray does not know.
    reason_message : str, optional
        The engine's account: what the object was, how it was lost, what to do.
    """

    REASON_MESSAGES: dict[int, str] = {
        12: "The task that made it has used up its retries.",
        13: "What it takes to run its task again was dropped to save memory (RAY_max_lineage_bytes).",
        27: "It was put, so no task can make it again.",
        28: "The task that made it may not be retried (max_retries=0, or max_task_retries=0 of an actor).",
        29: "It belongs to another process.",
        30: "Its reference is not known.",
        31: "The task that made it was cancelled.",
        32: "Keeping lineage is turned off (RAY_max_lineage_bytes=0).",
    }
    _WHY = "The object cannot be made again by running its task."

    def __init__(
        self,
        object_ref_hex: str,
        reason: Any = None,
        reason_message: str | None = None,
        owner_address: Any = None,
        call_site: str = "",
    ) -> None:
        super().__init__(object_ref_hex, owner_address, call_site, reason_message or self.REASON_MESSAGES.get(reason))
        self.reason = reason
        self.args = (object_ref_hex, reason, reason_message, owner_address, call_site)


class RaySystemError(RayError):
    """A fault of raygo itself, or its engine is gone."""

    def __init__(self, client_exc: Any, traceback_str: str | None = None) -> None:
        super().__init__(client_exc, traceback_str)
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        text = f"System error: {self.client_exc}"
        return f"{text}\ntraceback: {self.traceback_str}" if self.traceback_str else text


class RayChannelError(RaySystemError):
    """A channel of a compiled graph failed."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A read or write of a compiled graph's channel timed out."""


class RayCgraphCapacityExceeded(RaySystemError):
    """A compiled graph holds as many unread results as it may."""


class RayDirectTransportError(RaySystemError):
    """A transfer from device to device failed."""


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """A generator task that ran again yielded other items than the first time."""


class ObjectRefStreamEndOfStreamError(RayError):
    """The generator has no further item."""


class OufOfBandObjectRefSerializationException(RayError):
    """A reference was pickled outside of raygo, where its count cannot be kept."""


class PlasmaObjectNotAvailable(RayError):
    """The object is not in this node's store."""


class UnserializableException(RayError):
    """Stands for an exception that could not be pickled, or not be rebuilt here; its text has the type and the message."""

    def __init__(self, original_stack_trace: str) -> None:
        super().__init__(original_stack_trace)
        self._original_stack_trace = original_stack_trace

    def __str__(self) -> str:
        return self._original_stack_trace


class UserCodeException(RayError):
    """User code that raygo calls (a data function, a callback) raised."""


class AsyncioActorExit(RayError):
    """An asynchronous actor asked to end."""


class ActorExit(BaseException):
    """How `raygo.actor.exit_actor` leaves the running call; no `except Exception` of the user's catches it."""


class AuthenticationError(RayError):
    """The token was missing or wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RpcError(RayError):
    """A call between nodes failed."""

    def __init__(self, message: str, rpc_code: int | None = None) -> None:
        super().__init__(message, rpc_code)
        self.message = message
        self.rpc_code = rpc_code

    def __str__(self) -> str:
        return self.message


def _plain(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Rebuild an exception without running its constructor a second time."""
    error = cls.__new__(cls, *args)
    error.args = args
    return error


RAY_EXCEPTION_TYPES: list[type[RayError]] = [
    value for value in list(globals().values()) if isinstance(value, type) and issubclass(value, RayError) and not value.__name__.startswith("_")
]
