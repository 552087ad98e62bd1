"""A worker: what its task loop, which is C, leaves to Python.

`main` adopts the connection that the template handed over and enters the loop. The loop runs plain functions and methods by itself and calls the
functions of `Handlers` for the rest: loading a function, running tasks with something special about them, turning exceptions into answers.
`_worker_run.py` runs those tasks, `_worker_async.py` the calls of async actors, `_worker_errors.py` words the errors.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from raygo import _binding, _session, _worker_errors, runtime_context
from raygo._worker_run import State, create_actor, run
from raygo._worker_template import Template

# Imports whose time is worth saving: the node's template imports them before it forks. DistributedDataParallel imports torch._dynamo when it is made.
HEAVY = (
    "asyncio", "numpy", "pandas", "scipy", "sklearn", "pyarrow", "polars", "torch", "torch._dynamo", "torchvision", "tensorflow", "jax", "transformers",
    "datasets", "lightning", "xgboost", "lightgbm", "cv2", "PIL", "matplotlib", "sympy", "networkx", "requests", "aiohttp", "fastapi", "pydantic", "boto3",
    "joblib", "nltk", "spacy",
)  # fmt: skip

#: For the marker that tells whose output follows (`_template.py`). In C, because every write asks.
current_name = _binding.task_name

_state = State()


class Handlers:
    """What the loop calls. Every task that comes here is answered here; an exception out of these functions ends the process."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._reported: set[str] = set()

    def load(self, number: int, fields: bytes) -> tuple[Any, ...]:
        """Make a template runnable."""
        template = Template(number, _binding.unpack(fields))
        try:
            template.load(self._state.actor)
        except Exception as exc:
            exc.__dict__["raygo_template"] = template  # who called it decides in what form the error is sent
            raise
        return template, template.callable, template.fast, template.name, template.msgpack, self._state.group_of(template)

    def run(self, task: Any) -> Any:
        """Run a task that is not plain."""
        if task.template.kind == "actor":
            return create_actor(self._state, task)
        return run(self._state, task)

    def error(self, task: Any, exc: BaseException) -> Any:
        """Answer a task that raised, or that could not be begun."""
        return _worker_errors.answer(self._state, task, exc)

    def flush(self) -> None:
        """See to it that what a task printed leaves before its answer does."""
        flush()

    def modules(self) -> None:
        """Tell the node what this job imports."""
        found = [name for name in HEAVY if name in sys.modules and name not in self._reported]
        if found:
            from raygo._calls import call

            self._reported.update(found)
            call("modules.report", {"modules": found})


def main(conn: int, arena_fd: int) -> int:
    """Be a worker on this socket until the engine, or the actor in it, ends it.

    Parameters
    ----------
    conn, arena_fd
        Descriptors of the connection and of the shared memory.

    Returns
    -------
    int
        The process's exit code. The caller ends it by ``os._exit``: threads of the user's must not hold it up.
    """
    _session.begin(_binding.worker_adopt(conn, arena_fd))
    signal.signal(signal.SIGINT, _binding._interrupt)
    _hide_gpus()
    runtime_context.task_info = _state.info
    _binding.set_types(current_task=_state.current)
    logging = os.environ.pop("RAYGO_LOGGING_CONFIG", None)
    if logging is not None:
        import json

        from raygo._logging_config import LoggingConfig

        LoggingConfig.from_dict(json.loads(logging))._apply()
    hook = os.environ.pop("RAYGO_WORKER_SETUP_HOOK", None)
    if hook is not None:
        from raygo.runtime_env._environment import run_hook

        run_hook(hook)
    code = _binding.worker_main(Handlers(_state))
    finish(code)
    return code


def _hide_gpus() -> None:
    """A task sees the GPUs it was given; where a node has some, one that asked for none sees none."""
    if os.path.isdir("/proc/driver/nvidia/gpus"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def finish(code: int) -> None:
    """What ends an actor in order, and what the end of an interpreter would have done: exit hooks, ``__del__``, the last output."""
    import atexit

    actor = _state.actor.instance if _state.actor is not None else None
    # By the class: an instance whose __getattr__ answers to every name has neither.
    shut_down, delete = (getattr(type(actor), name, None) for name in ("__ray_shutdown__", "__del__"))
    for hook, of in ((shut_down, (actor,)), (atexit._run_exitfuncs, ()), (delete, (actor,))):
        try:
            if hook is not None:
                hook(*of)
        except BaseException:  # shown as the interpreter would, and no reason to keep the rest from ending
            sys.excepthook(*sys.exc_info())
    flush()
    _binding.worker_goodbye() if _state.exits else None  # last, as it closes the connection, which hooks may use


def flush() -> None:
    """Write out what stands in the buffers of stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # the user closed or replaced it
            pass
