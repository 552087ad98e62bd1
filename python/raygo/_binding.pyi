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
    address: int
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int) -> memoryview: ...
    def private(self) -> Buffer: ...               # the same bytes, writable, copied page by page as they are written; for this process alone

class Submitter:
    """The callable behind `f.remote` and `actor.method.remote`: __call__(*args, **kwargs) -> ObjectRef | list | what `wrap` makes of it.

    prepare() is called (GIL held) when there is no template for the present session or a captured global changed; it returns
    (template_number, nreturns, flags, check) where flags are RG_F_STREAMING|RG_F_ACTOR_CREATE|…, check is a tuple of
    (namespace dict, name, value) compared by identity before each call; a fifth value True asks for arguments in msgpack.
    A fresh prepare() follows a difference.
    signature: (min positional, max positional or -1, kwargs_ok bool) or None; calls outside it go to bind(args, kwargs), which raises TypeError or
    returns (args, kwargs). actor: the actor's ObjectRef for method calls. wrap: called with the raw result (list of refs; for streaming the end's ref).
    max_pending: with so many unfinished calls in counter, which Submitters may share, raises PendingCallsLimitExceeded through raise_pending()."""
    def __init__(self, prepare: Callable[[], tuple], *, signature: tuple | None, bind: Callable, wrap: Callable | None = None,
                 actor: ObjectRef | None = None, max_pending: int = -1, counter: Any = None, raise_pending: Callable | None = None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

# ---- life
def set_types(**types: Any) -> None:
    """Hands over what C needs from Python: ObjectRef (subclass), serialize(value) slow path,
    deserialize(format, body, buffers) slow path, make_error(blob_value) -> exception, raise_syserr(map_bytes) -> exception, auto_init(),
    not_initialized() -> exception, current_task() -> int (threads of an event loop), array_path: bool (False: arrays go to serialize too),
    call_site(what) -> str (None: places are not recorded).
    serialize returns (format, body, buffers, joined): the first `joined` buffers are parts of one.
    It is given 1 as well where the value is a call's arguments, 2 where it is (arguments, keywords)."""
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
           number: int = 0, msgpack: bool = False) -> list[ObjectRef]: ...
def cancel(task: ObjectRef, force: bool, recursive: bool) -> None: ...
def kill(actor: ObjectRef, no_restart: bool) -> None: ...
def counter() -> Any: ...                          # a capsule, for Submitter(counter=…)
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
class Task:
    """One RG_EXEC. Its answer is result, error, plain or fault; afterwards only id, template and answered may be read."""
    id: int
    flags: int
    actor: int
    parent: int
    attempt: int
    nreturns: int
    retries_left: int
    context: bytes
    template: Any                                  # what handlers.load returned first; None when it failed
    answered: bool
    def args(self) -> tuple[tuple, dict]: ...
    def result(self, values: tuple, status: int = 0, more: bool = False) -> None: ...   # more: the answer may wait for others
    def error(self, value: Any, status: int = 1, more: bool = False) -> None: ...
    def plain(self, values: tuple) -> None: ...    # what every language knows
    def fault(self, map: bytes, status: int = 1) -> None: ...   # SYSERR: an error as text
    def item(self, number: int, value: Any) -> None: ...
    def generate(self) -> None: ...                # begins to count what the consumer takes
    def taken(self, at_least: int = 0) -> int: ... # waits for a number; -1: dropped
    def begin(self) -> bool: ...                   # an event loop's thread runs it now, until end(); False: cancelled before
    def end(self) -> bool: ...                     # whether it was cancelled meanwhile

def worker_adopt(fd: int, arena_fd: int) -> bytes: ...     # WELCOME map
def worker_main(handlers: Any) -> int: ...
"""The task loop, in C; returns the exit code.  handlers: load(number, map) -> (info, callable or None, fast, name, msgpack, group); run(task) and
error(task, exception) answer the task and return None, True (the process ends), ("loop", function) or ("threads", [limit of each group]);
flush() and modules() after tasks that printed, or imported much."""
def worker_loop_begin() -> tuple[int, int]: ...            # descriptors to watch; from now on worker_pump reads
def worker_pump() -> tuple[list[Task], list[tuple[int, int, int]], bool]: ...   # tasks, notices (1 cancel | 2 resume | 3 exit, task, value), ended
def worker_flush() -> None: ...
def worker_goodbye() -> None: ...
def task_name() -> str: ...                                # of this thread's task; also notes that something is being printed
def running() -> tuple[Any, int, int, bytes] | None: ...   # (template, number, attempt, context) of this thread's task
def is_canceled() -> bool: ...
def current_task() -> int: ...                             # number; 0 in a driver's own code; per thread and per asyncio task (set_types' current_task)
def set_current_task(number: int) -> None: ...
def set_loop_thread(on: bool) -> None: ...
def _interrupt(signum: int, frame: Any) -> None: ...       # a worker's SIGINT handler
