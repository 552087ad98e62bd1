"""What the C extension offers to the package.  One process, one client."""

from collections.abc import Callable, Sequence
from typing import Any

VERSION: str

class ObjectRef:
    """A handle on one object; raygo.ObjectRef subclasses it (set_types). 28 bytes of identity; no lock in its destructor."""
    __slots__ = ()
    def __init__(self, id: bytes) -> None: ...          # 28 bytes; of this session
    def binary(self) -> bytes: ...
    def hex(self) -> str: ...
    def task_id_bytes(self) -> bytes: ...               # 24
    @property
    def _task(self) -> int: ...                         # number within the session
    @property
    def _index(self) -> int: ...
    # __hash__, __eq__, __reduce__ (notes the reference for the value being serialised), __repr__ ObjectRef(hex)

class Buffer:
    """Read-only bytes of one object (arena or inline); memoryview(b) is zero-copy; the last view's end unpins."""

class Submitter:
    """The callable behind `f.remote` and `actor.method.remote`: __call__(*args, **kwargs) -> ObjectRef | list | what `wrap` makes of it.

    prepare() is called (GIL held) when there is no template for the present session or a captured global changed; it returns
    (template_number, nreturns, flags, check) where flags are RG_F_STREAMING|RG_F_ACTOR_CREATE|…, check is a tuple of
    (namespace dict, name, value) compared by identity before each call. A fresh prepare() follows a difference.
    signature: (min positional, max positional or -1, kwargs_ok bool) or None; calls outside it go to bind(args, kwargs), which raises TypeError or
    returns (args, kwargs). actor: the actor's ObjectRef for method calls. wrap: called with the raw result (list of refs; for streaming the end's ref).
    max_pending: raises PendingCallsLimitExceeded through raise_pending()."""
    def __init__(self, prepare: Callable[[], tuple], *, signature: tuple | None, bind: Callable, wrap: Callable | None = None,
                 actor: ObjectRef | None = None, max_pending: int = -1, raise_pending: Callable | None = None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

# ---- life
def set_types(**types: Any) -> None:
    """Hands over what C needs from Python: ObjectRef (subclass), serialize(value) -> (pickle bytes, [buffers]) slow path,
    deserialize(format, body, buffers) slow path, make_error(blob_value) , raise_syserr(map_bytes) -> exception, auto_init(), not_initialized()."""
def engine_start(library: str, options: bytes, hello: bytes) -> bytes: ...     # WELCOME map
def connect(path: str, hello: bytes, timeout: float) -> bytes: ...
def shutdown(timeout: float) -> None: ...          # closes the client, stops the engine if it is ours
def connected() -> bool: ...
def is_worker() -> bool: ...
def generation() -> int: ...                       # grows with every engine_start/connect
def client_pid() -> int: ...

# ---- objects
def put(value: Any) -> ObjectRef: ...
def put_blob(data: bytes, format: int) -> ObjectRef: ...
def get(refs: Sequence[ObjectRef], timeout: float | None) -> list: ...     # raises; GetTimeoutError is raised by the package from TimeoutError
def get_one(ref: ObjectRef, timeout: float | None) -> Any: ...
def get_blob(ref: ObjectRef, timeout: float | None) -> tuple[int, memoryview, bool]: ...   # (format, body, is_error)
def wait(refs: Sequence[ObjectRef], num_returns: int, timeout: float | None) -> tuple[list[ObjectRef], list[ObjectRef]]: ...
def is_ready(ref: ObjectRef) -> bool: ...
def ref_from(task: int, index: int, owned: bool = False) -> ObjectRef: ...
def item_ref(task: int, k: int) -> ObjectRef: ...
def next_number() -> int: ...
def serialize(value: Any) -> tuple[int, bytes, list, list[ObjectRef]]: ...   # format, body, buffers, contained refs
def loads(blob: Any) -> Any: ...
def dumps(value: Any) -> bytes: ...                # whole blob

def pack(value: Any) -> bytes: ...                # msgpack of a plain value
def unpack(data: Any) -> Any: ...

# ---- tasks
def template(map: bytes) -> int: ...               # RG_TEMPLATE; returns the number
def submit(template: int, flags: int, nreturns: int, args: tuple, kwargs: dict | None, actor: ObjectRef | None = None,
           number: int = 0) -> list[ObjectRef]: ...
def cancel(task: int, force: bool, recursive: bool) -> None: ...
def kill(actor: int, no_restart: bool) -> None: ...
def consumed(task: int, count: int) -> None: ...   # -1: dropped
def call(payload: bytes, timeout: float | None = None) -> bytes: ...         # RG_CALL; raises RaygoCallError(code, message)
class CallError(Exception):
    code: int
    message: str

# ---- completion queue
def cq_fd() -> int: ...
def cq_watch(ref: ObjectRef, token: int) -> bool: ...      # True: ready already
def cq_poll() -> list[int]: ...
def next_log(timeout: float | None) -> bytes | None: ...   # None: closed

# ---- worker
def worker_adopt(fd: int, arena_fd: int) -> bytes: ...     # WELCOME map
def worker_main(handlers: Any) -> int: ...                 # the task loop, in C; returns the exit code
def current_task() -> int: ...                             # number; 0 in a driver's own code; per thread and per asyncio task (contextvar set by the package)
def set_current_task(number: int) -> None: ...
