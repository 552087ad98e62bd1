"""Names of things: object references and the public forms of the engine's numbers.

The engine names tasks, objects and actors by 64-bit numbers within a session.  Their public forms have Ray's sizes and carry the
session's incarnation, so that one that strayed from another session is noticed (PROTOCOL.md, "Numbers").
"""

from __future__ import annotations

from types import GenericAlias

from raygo import _binding, _session

TYPE_CHECKING = False  # see _api.py
if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from collections.abc import Generator
    from typing import Any, ClassVar

    from typing_extensions import Self


class Language:
    """The language of a function or worker."""

    PYTHON: ClassVar[Language]
    JAVA: ClassVar[Language]
    CPP: ClassVar[Language]
    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: int) -> None:
        self._name, self._value = name, value

    def value(self) -> int:
        """The number that Ray gives it."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Language) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> tuple[Any, ...]:
        return Language, (self._name, self._value)


Language.PYTHON = Language("PYTHON", 0)
Language.JAVA = Language("JAVA", 1)
Language.CPP = Language("CPP", 2)


class BaseID:
    """Bytes of a fixed length that name something; equal when the type and the bytes are."""

    _SIZE: ClassVar[int] = 28
    __slots__ = ("_id",)

    def __init__(self, id: bytes) -> None:
        if not isinstance(id, bytes):
            raise TypeError(f"Unsupported type: {type(id)}: a {type(self).__name__} is made of bytes")
        if len(id) != self._SIZE:
            raise ValueError(f"ID string needs to have length {self._SIZE}, got {len(id)}")
        self._id = id

    @classmethod
    def size(cls) -> int:
        """Number of bytes."""
        return cls._SIZE

    @classmethod
    def from_binary(cls, id_bytes: bytes) -> Self:
        """From `binary`'s bytes."""
        return cls(id_bytes)

    @classmethod
    def from_hex(cls, hex_id: str | bytes) -> Self:
        """From `hex`'s text."""
        return cls(bytes.fromhex(hex_id.decode() if isinstance(hex_id, bytes) else hex_id))

    @classmethod
    def from_random(cls) -> Self:
        """A fresh one that names nothing."""
        import os

        return cls(os.urandom(cls._SIZE))

    @classmethod
    def nil(cls) -> Self:
        """The one that stands for none."""
        return cls(b"\xff" * cls._SIZE)

    def is_nil(self) -> bool:
        """Whether it stands for none."""
        return self._id == b"\xff" * self._SIZE

    def binary(self) -> bytes:
        """The bytes."""
        return self._id

    def hex(self) -> str:
        """The bytes in hexadecimal."""
        return self._id.hex()

    def redis_shard_hash(self) -> int:
        """A hash that is the same in every process."""
        return int.from_bytes(self._id[:8], "little")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._id == self._id  # type: ignore[attr-defined]

    def __lt__(self, other: BaseID) -> bool:
        return self._id < other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._id.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._id,)


class UniqueID(BaseID):
    """A name without structure."""

    __slots__ = ()


class JobID(BaseID):
    """One driver's work in the session."""

    _SIZE = 4
    __slots__ = ()

    @classmethod
    def from_int(cls, value: int) -> Self:
        """From the job's number."""
        if not 0 <= value < 1 << 32:
            raise ValueError(f"a job's number is between 0 and 2**32 - 1, not {value}")
        return cls(value.to_bytes(4, "little"))

    def int(self) -> int:
        """The job's number."""
        return int.from_bytes(self._id, "little")


class NodeID(UniqueID):
    """A node: one machine's engine, for the time it lives."""

    __slots__ = ()


class WorkerID(UniqueID):
    """A process of the session."""

    __slots__ = ()


class FunctionID(UniqueID):
    """A remote function."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """An actor class."""

    __slots__ = ()


class ActorID(BaseID):
    """An actor: its number, the session, its job."""

    _SIZE = 16
    __slots__ = ()

    @classmethod
    def of(cls, job_id: JobID, parent_task_id: TaskID, parent_task_counter: int) -> Self:
        """The actor with this number (`parent_task_counter`) in the job."""
        return cls(parent_task_counter.to_bytes(8, "little") + _incarnation(4) + job_id.binary())

    @classmethod
    def _of_number(cls, number: int) -> Self:
        return cls(number.to_bytes(8, "little") + _incarnation(4) + _job())

    @property
    def job_id(self) -> JobID:
        """The job that made it."""
        return JobID(self._id[-4:])

    @property
    def _number(self) -> int:
        return int.from_bytes(self._id[:8], "little")


class TaskID(BaseID):
    """A task: its number, the session, its job."""

    _SIZE = 24
    __slots__ = ()

    @classmethod
    def _of_number(cls, number: int) -> Self:
        return cls(number.to_bytes(8, "little") + _incarnation(8) + bytes(4) + _job())

    @classmethod
    def for_driver_task(cls, job_id: JobID) -> Self:
        """What stands for the driver's own code: number 0."""
        return cls(bytes(8) + _incarnation(8) + bytes(4) + job_id.binary())

    @classmethod
    def for_fake_task(cls, job_id: JobID) -> Self:
        """A fresh one in the job that names no task."""
        import os

        return cls(os.urandom(20) + job_id.binary())

    @classmethod
    def for_normal_task(cls, job_id: JobID, parent_task_id: TaskID, parent_task_counter: int) -> Self:
        """The task with this number (`parent_task_counter`) in the job."""
        return cls(parent_task_counter.to_bytes(8, "little") + _incarnation(8) + bytes(4) + job_id.binary())

    @classmethod
    def for_actor_task(cls, job_id: JobID, parent_task_id: TaskID, parent_task_counter: int, actor_id: ActorID) -> Self:
        """The call with this number; a call and a task are numbered alike."""
        return cls.for_normal_task(job_id, parent_task_id, parent_task_counter)

    @classmethod
    def for_actor_creation_task(cls, actor_id: ActorID) -> Self:
        """The task that creates the actor has the actor's number."""
        return cls(actor_id.binary()[:8] + _incarnation(8) + bytes(4) + actor_id.binary()[-4:])

    def actor_id(self) -> ActorID:
        """The actor whose creation this task is."""
        return ActorID(self._id[:8] + self._id[8:12] + self._id[-4:])

    def job_id(self) -> JobID:
        """The task's job."""
        return JobID(self._id[-4:])


class PlacementGroupID(BaseID):
    """A placement group: its number, the session, its job."""

    _SIZE = 18
    __slots__ = ()

    @classmethod
    def of(cls, job_id: JobID) -> Self:
        """A fresh one in the job."""
        return cls(_binding.next_number().to_bytes(8, "little") + _incarnation(6) + job_id.binary())

    @classmethod
    def _of_number(cls, number: int) -> Self:
        return cls(number.to_bytes(8, "little") + _incarnation(6) + _job())

    @property
    def _number(self) -> int:
        return int.from_bytes(self._id[:8], "little")


class ObjectRef(_binding.ObjectRef):
    """A handle on a value that is there, or will be.

    It comes from ``f.remote()``, ``actor.method.remote()`` and `raygo.put`, and keeps its value in the store while it lives anywhere.
    """

    __slots__ = ("__weakref__",)
    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)  # in annotations: ObjectRef[int]

    @classmethod
    def from_binary(cls, id_bytes: bytes) -> Self:
        """From `binary`'s bytes, within the session that they come from."""
        return cls(id_bytes)

    @classmethod
    def from_hex(cls, hex_id: str) -> Self:
        """From `hex`'s text."""
        return cls(bytes.fromhex(hex_id))

    @classmethod
    def from_random(cls) -> Self:
        """A reference to no object, with a number of its own."""
        return cls(_binding.next_number().to_bytes(8, "little") + _incarnation(8) + bytes(4) + _job() + bytes(4))

    @classmethod
    def nil(cls) -> Self:
        """The one that stands for none."""
        return cls(b"\xff" * 28)

    @classmethod
    def size(cls) -> int:
        """Number of bytes."""
        return 28

    def is_nil(self) -> bool:
        """Whether it stands for none."""
        return self.binary() == b"\xff" * 28

    def task_id(self) -> TaskID:
        """The task that makes the value; a put has a number of its own."""
        return TaskID(self.task_id_bytes())

    def job_id(self) -> JobID:
        """The job of the task."""
        return JobID(self.task_id_bytes()[-4:])

    def owner_address(self) -> bytes:
        """The node that owns the object."""
        return _session.get().node_id.encode()

    def call_site(self) -> str:
        """Where the reference was made; empty, since call sites are not recorded."""
        return ""

    def tensor_transport(self) -> None:
        """How tensors in the value travel: always through the object store, which is None here."""
        return None

    def redis_shard_hash(self) -> int:
        """A hash that is the same in every process."""
        return int.from_bytes(self.binary()[:8], "little")

    def future(self) -> concurrent.futures.Future[Any]:
        """A ``concurrent.futures.Future`` of the value.

        Examples
        --------
        >>> ref.future().result(timeout=5)  # doctest: +SKIP
        """
        from raygo._completions import thread_future

        return thread_future(self)

    def as_future(self, _internal: bool = False) -> asyncio.Future[Any]:
        """An ``asyncio.Future`` of the value, of the running loop."""
        from raygo._completions import loop_future

        return loop_future(self)

    def __await__(self) -> Generator[Any, None, Any]:
        from raygo._completions import loop_future

        return loop_future(self).__await__()


ObjectID = ObjectRef


def _incarnation(n: int) -> bytes:
    session = _session.current
    return (session.incarnation if session else 0).to_bytes(8, "little")[:n]


def _job() -> bytes:
    session = _session.current
    return (session.job if session else 0).to_bytes(4, "little")


def object_hex(task: int, index: int) -> str:
    """An ObjectRef's `hex` from the engine's numbers."""
    return (task.to_bytes(8, "little") + _incarnation(8) + bytes(4) + _job() + index.to_bytes(4, "little")).hex()


def actor_hex(number: int) -> str:
    """An ActorID's `hex` from the engine's number."""
    return ActorID._of_number(number).hex()
