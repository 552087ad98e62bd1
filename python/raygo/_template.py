"""The process that workers are forked from.

It is started by the node engine as ``python -m raygo._template`` with a control socket as descriptor 3 and the arena's descriptor in
``RAYGO_ARENA_FD``; ``engine/wire/PROTOCOL.md`` describes what is said on the socket. It has one thread, imports what workers will need, and
then only forks and reaps: a fork takes milliseconds and shares all that was imported, a fresh interpreter takes neither.

What must not be in a template: a second thread (its locks would stay locked in the children), the Go runtime (it does not survive a fork), and
anything that should differ between workers, such as random state.
"""

from __future__ import annotations

import _socket  # the module socket around it takes ten milliseconds more
import _thread
import array
import builtins
import faulthandler
import gc
import importlib
import io
import json
import os
import select
import signal
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

_CONTROL_FD = 3
_RESUME = "RAYGO_TEMPLATE_RESUME"
_FDS_PER_FORK = 3
_LINE = 8192  # what is longer is written before its line ends

# Libraries that start a thread per core when they are loaded read these. One thread means none beside ours.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

# What every worker uses within its first task, and what many use later, above all those whose tasks call others: a fork with it saves each of them 50 ms
# of its own. That is imported, one module at a time, when nothing is asked of the template for a moment, so that the first worker does not wait for it; or
# between forks when there are already several. Not asyncio, which takes 4 MB: jobs that use it are noticed (raygo._worker.HEAVY).
_NEEDED = ("pickle", "traceback", "cloudpickle", "raygo._worker")
_LATER = (
    "raygo.remote_function", "raygo._serialization", "raygo.runtime_env", "hashlib", "raygo._generator", "raygo.actor", "concurrent.futures.thread", "queue",
)  # fmt: skip
_LATER_AFTER_MS = 300
_LATER_AFTER_FORKS = 8

# How long workers have to end by themselves once the engine is gone.
_END_WITHIN_S = 0.5


def _no_name() -> str:
    return ""


class _Output(io.TextIOWrapper):
    """A worker's stdout or stderr: tells the engine which task the following text is from.

    ``print`` writes a line's text and its end apart. What has no end yet is held for its thread, so that threads do not write into each
    other's lines.
    """

    _task = ""
    _name: Callable[[], str] = staticmethod(_no_name)
    _held: dict[int, tuple[str, str]]  # thread -> whose, text

    def write(self, text: str, /) -> int:
        name, size = self._name(), len(text)
        if self._held:
            text = self._take(name) + text
        if text and "\n" not in text and "\r" not in text and len(text) < _LINE:
            self._held[_thread.get_ident()] = name, text
        elif text:
            self._put(name, text)
        return size

    def _take(self, name: str) -> str:
        before = self._held.pop(_thread.get_ident(), None)
        if before is None or before[0] == name:
            return before[1] if before else ""
        self._put(*before)
        return ""

    def _put(self, name: str, text: str) -> None:
        if name != self._task:
            self._task = name
            text = _mark(name) + text
        super().write(text)

    def flush(self) -> None:
        while self._held:
            try:
                _, held = self._held.popitem()
            except KeyError:  # another thread took it
                break
            self._put(*held)
        super().flush()

    def belongs_to(self, name: Callable[[], str]) -> None:
        """From now on all is from what `name` says, also what others than Python write."""
        self.flush()
        self._name = name  # type: ignore[method-assign]
        self._task = name()
        super().write(_mark(self._task))


def _mark(name: str) -> str:
    return "\x1eraygo:" + name.replace("\n", " ") + "\n"


class _Control:
    """The control socket: lines and descriptors in, lines out."""

    def __init__(self, fd: int) -> None:
        self.sock = _socket.socket(fileno=fd)
        self.sock.setblocking(True)
        os.set_inheritable(fd, False)
        self.fds: deque[int] = deque()
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Read once; yield the whole lines there are. Raises EOFError when the engine is gone."""
        space = _socket.CMSG_LEN(64 * array.array("i").itemsize)
        try:
            data, ancillary, _flags, _address = self.sock.recvmsg(1 << 16, space, _socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, ancillary = b"", []
        for level, kind, payload in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self.fds.extend(numbers)
        if not data:
            raise EOFError
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield line.decode()

    def send(self, line: str) -> None:
        try:
            self.sock.sendall(line.encode(errors="replace") + b"\n")
        except ConnectionError:
            # The engine is gone; the next read says so and ends the process.
            pass


class _Template:
    def __init__(self, control: _Control, arena_fd: int) -> None:
        self._control = control
        self._arena_fd = arena_fd
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._children: set[int] = set()
        self.worker: Any = None

    # ---- preparing

    def prepare(self, config: dict[str, Any], skip: Sequence[str]) -> None:
        """Make this process look like the job's driver, and import what its workers need."""
        os.environ.update(config.get("env") or {})
        _set_path(config.get("sys_path") or [])
        _set_main(config.get("main_path") or "")
        cwd = config.get("cwd")
        if cwd:
            try:
                os.chdir(cwd)
            except OSError as error:
                self._control.send(f"note the working directory {cwd!r} cannot be entered ({error.strerror}); workers start in {os.getcwd()!r}")
        before = {key: os.environ.get(key) for key in _ONE_THREAD}
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        gc.disable()       # what modules make stays; looking through it again and again takes a tenth of the time
        try:
            for name in _NEEDED:
                importlib.import_module(name)
            self.worker = sys.modules["raygo._worker"]
            for name in config.get("preload") or []:
                if name not in skip:
                    self._preload(name, config, skip)
        finally:
            gc.enable()
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value

    def _preload(self, name: str, config: dict[str, Any], skip: Sequence[str]) -> None:
        try:
            importlib.import_module(name)
        except Exception as error:
            self._control.send(f"skipped {name} {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}")
            return
        threads = _threads()
        if threads > 1:
            self._control.send(f"skipped {name} it starts {threads - 1} threads when it is imported, which a fork does not survive")
            _start_again(config, [*skip, name], self._arena_fd)

    # ---- serving

    def serve(self) -> list[int]:
        """Fork when told to and report who ended, until the engine is gone.

        Returns in each child, with its descriptors: what a worker runs should not stand on the template's frames, which would fill the last lines of a
        crash's traceback.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()
        self._control.send(f"ready {os.getpid()}")
        poll = select.poll()
        poll.register(self._wake_r, select.POLLIN)
        poll.register(self._control.sock, select.POLLIN)
        idle: int | None = _LATER_AFTER_MS
        later = deque(_LATER)
        while True:
            ready = {fd for fd, _events in poll.poll(idle)}
            if later and (not ready or len(self._children) >= _LATER_AFTER_FORKS):
                importlib.import_module(later.popleft())
                idle = 0
                if not later:
                    idle = None
                    gc.collect()
                    gc.freeze()
            if self._wake_r in ready:
                _drain(self._wake_r)
                self._reap()
            if self._control.sock.fileno() in ready:
                try:
                    for line in self._control.lines():
                        fds = self._obey(line)
                        if fds is not None:
                            return fds
                except EOFError:
                    self._reap_all(poll)
                    os._exit(0)

    def _obey(self, line: str) -> list[int] | None:
        """Do what a line says. In a new child, return its descriptors."""
        verb, _, worker = line.partition(" ")
        if verb != "fork":
            self._control.send(f"note unknown request {verb!r}")
            return None
        fds = [self._control.fds.popleft() for _ in range(min(_FDS_PER_FORK, len(self._control.fds)))]
        if len(fds) != _FDS_PER_FORK:
            self._control.send(f"failed {worker} only {len(fds)} of {_FDS_PER_FORK} descriptors came (too many open files?)")
        else:
            try:
                pid = os.fork()
            except OSError as error:
                self._control.send(f"failed {worker} fork: {error.strerror}")
            else:
                if pid == 0:
                    return fds
                try:
                    os.setpgid(pid, pid)
                except OSError:
                    # It has done so itself and gone on, or has ended.
                    pass
                self._children.add(pid)
                self._control.send(f"forked {worker} {pid}")
        for fd in fds:
            os.close(fd)
        return None

    def _reap_all(self, poll: select.poll) -> None:
        """The engine is gone: see every worker end, and all that it left running.

        A worker's connection closes before the process has ended, so the last ones may still be about to when the engine, which saw them go, has
        closed the control socket.
        """
        poll.unregister(self._control.sock)
        for kill in (False, True):
            if kill:
                for pid in self._children:
                    _kill_group(pid)
            end = time.monotonic() + _END_WITHIN_S
            while self._reap():
                left = end - time.monotonic()
                if left <= 0:
                    break
                poll.poll(left * 1000)
                _drain(self._wake_r)

    def _reap(self) -> bool:
        """Report those that have ended. Returns whether others have not."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            pid = ended.si_pid
            # What a task started and left running is in its worker's group. The number cannot be another's before the worker is reaped.
            _kill_group(pid)
            self._children.discard(pid)
            _, status = os.waitpid(pid, 0)
            self._control.send(f"exit {pid} {status}")

    # ---- in the child

    def become_worker(self, fds: list[int]) -> int:
        """In a new child: take on its descriptors and leave the template's behind. Returns the connection."""
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        conn, out, err = fds
        os.dup2(out, 1)
        os.dup2(err, 2)
        self._control.sock.close()
        for fd in (out, err, self._wake_r, self._wake_w, *self._control.fds):
            os.close(fd)
        _name_process("raygo-worker")
        name = getattr(self.worker, "current_name", _no_name)
        sys.stdout = _open_output(1, name)
        sys.stderr = _open_output(2, name)
        vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)
        gc.enable()
        # The module random sees to itself.
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed()
        return conn


def _open_output(fd: int, name: Callable[[], str]) -> _Output:
    raw = io.BufferedWriter(io.FileIO(fd, "wb", closefd=False))
    out = _Output(raw, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True)
    out._name = name  # type: ignore[method-assign]
    out._held = {}
    return out


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass  # no such group: the process ended before it had made one


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # The task closed it, or nobody reads any more. Nothing can be told to anybody here.
            pass


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _name_process(name: str) -> None:
    """Name the process for ``ps`` and ``top``."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write(name)
    except OSError:
        # A sandbox without a writable /proc; the name is a convenience.
        pass


def _set_path(path: list[str]) -> None:
    """Search modules where the driver does, then where this interpreter would by itself (a runtime environment may have its own)."""
    added = os.environ.pop("RAYGO_TEMPLATE_PATH", "")
    own = [entry for entry in sys.path if entry not in ("", added, os.getcwd())]
    sys.path[:] = list(dict.fromkeys([*path, *own])) if path else sys.path
    original = os.environ.pop("RAYGO_TEMPLATE_PYTHONPATH", None)
    if original is not None:
        os.environ["PYTHONPATH"] = original
    elif added:
        os.environ.pop("PYTHONPATH", None)


def _set_main(path: str) -> None:
    """Give workers an empty ``__main__``.

    What the driver defines there travels by value. It has no ``__file__``, so that ``multiprocessing``'s spawn in a worker does not run the
    driver's script.
    """
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv = [path]


def _start_again(config: dict[str, Any], skip: list[str], arena_fd: int) -> NoReturn:
    """Begin anew without a module, in the same process and with the same descriptors."""
    state = os.memfd_create("raygo-template", 0)
    with open(state, "w", closefd=False) as file:
        json.dump({"config": config, "skip": skip}, file)
    environment = dict(_STARTED_WITH)
    environment[_RESUME] = str(state)
    for fd in (_CONTROL_FD, arena_fd):
        if fd >= 0:
            os.set_inheritable(fd, True)
    os.set_inheritable(state, True)
    os.chdir(_STARTED_IN)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _resumed() -> dict[str, Any] | None:
    fd = os.environ.pop(_RESUME, None)
    if fd is None:
        return None
    with open(int(fd)) as file:
        file.seek(0)
        state: dict[str, Any] = json.load(file)
    return state


def _close_others(keep: set[int]) -> None:
    """Close what the driver happened to leave open to its children, so that workers do not hold its files and pipes."""
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                # The one that listed the folder.
                pass


_STARTED_WITH: dict[str, str] = {}
_STARTED_IN = "/"


def main() -> NoReturn:
    """Run the template until its engine is gone."""
    global _STARTED_IN
    gc.disable()
    state = _resumed()
    _STARTED_WITH.update(os.environ)
    _STARTED_IN = os.getcwd()
    stdin = os.open(os.devnull, os.O_RDONLY)
    os.dup2(stdin, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(2)
    _name_process("raygo-template")
    arena_fd = int(os.environ.get("RAYGO_ARENA_FD", "-1"))
    _close_others({fd for fd in (_CONTROL_FD, arena_fd) if fd >= 0})
    if arena_fd >= 0:
        os.set_inheritable(arena_fd, False)
    control = _Control(_CONTROL_FD)
    if state is None:
        first: list[str] = []
        try:
            while not first:
                first = list(control.lines())
        except EOFError:
            sys.exit(0)
        state = {"config": json.loads(first[0]), "skip": []}
    template = _Template(control, arena_fd)
    template.prepare(state["config"], state["skip"])
    fds = template.serve()
    code = 1
    try:
        conn = template.become_worker(fds)
        code = template.worker.main(conn, arena_fd)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(int(code or 0))


if __name__ == "__main__":
    # As a module of its own, so that what it defines outlives the __main__ that workers get.
    from raygo import _template

    _template.main()
