"""Starting a session, joining one, and ending it."""

from __future__ import annotations

import os
import sys
from _thread import RLock

from raygo import _binding, _session
from raygo._version import __version__

TYPE_CHECKING = False  # see _api.py
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

RAY_VERSION = "2.60.0"  # whose API this is
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_CONNECT_S = 15.0
_STOP_S = 10.0
_lock = RLock()  # one start or end at a time: tasks called from two threads must not start two engines
_owner = 0  # the process that began the session; a fork of it must not end it
_logs: Any = None
_registered = False

# The engine's settings that a user may change, by _system_config or a variable RAYGO_<NAME>.
_SETTINGS: dict[str, type] = {"infeasible_timeout_s": float, "worker_idle_s": float, "store_warn_after_s": float, "prestart": int}
# Those of them that Ray has too, by a variable RAY_<name> as well.
_RAY_SETTINGS: dict[str, type] = {
    "object_spilling_threshold": float,
    "object_spilling_config": str,
    "memory_usage_threshold": float,
    "memory_monitor_refresh_ms": int,
    "min_memory_free_bytes": int,
    "task_oom_retries": int,
    "task_oom_retry_delay_base_ms": int,
    "max_lineage_bytes": int,
    "actor_graceful_shutdown_timeout_ms": int,
}
_SETTINGS.update(_RAY_SETTINGS)
# Arguments of Ray's that have no effect here, and internal ones; all are accepted.
_INTERNAL = frozenset(
    (
        "_cluster_id",
        "_driver_object_store_memory",
        "_enable_object_reconstruction",
        "_memory",
        "_metrics_export_port",
        "_node_ip_address",
        "_node_name",
        "_object_spilling_directory",
        "_plasma_directory",
        "_redis_max_memory",
        "_redis_password",
        "_redis_username",
        "_system_config",
        "_temp_dir",
        "_tracing_startup_hook",
        "_skip_env_hook",
    )
)


class RayContext:
    """What `init` answers: where the session is.  As a context manager it ends the session.

    Attributes
    ----------
    address_info : dict
        ``node_id``, ``address``, ``gcs_address``, ``session_dir``, ``node_ip_address``, ``namespace`` and more.
    dashboard_url : str or None
    python_version, ray_version, ray_commit : str
    """

    def __init__(self, session: _session.Session) -> None:
        self._generation = _binding.generation()
        self.dashboard_url: str | None = None
        self.python_version = sys.version.split()[0]
        self.ray_version = RAY_VERSION
        self.ray_commit = f"raygo {__version__}"
        address = f"unix:{session.socket}"
        self.address_info: dict[str, Any] = {
            "node_ip_address": session.node_ip,
            "node_id": session.node_id,
            "address": address,
            "gcs_address": address,
            "raylet_socket_name": session.socket,
            "object_store_address": session.socket,
            "session_dir": session.session_dir,
            "session_name": session.session_name,
            "namespace": session.namespace,
            "webui_url": None,
            "metrics_export_port": None,
        }

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __contains__(self, key: object) -> bool:
        return key in self.address_info

    def get(self, key: str, default: Any = None) -> Any:
        """An entry of `address_info`."""
        return self.address_info.get(key, default)

    def keys(self) -> Any:
        """The keys of `address_info`."""
        return self.address_info.keys()

    def to_dict(self) -> dict[str, Any]:
        """A copy of `address_info`."""
        return dict(self.address_info)

    def disconnect(self) -> None:
        """End the session, if it is still the one this context came from."""
        if self._generation == _binding.generation():
            shutdown()

    def __enter__(self) -> RayContext:
        return self

    def __exit__(self, *exc: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        info = self.address_info
        shown = ", ".join(f"{key}={info[key]!r}" for key in ("address", "session_dir", "namespace"))
        return f"RayContext(dashboard_url={self.dashboard_url!r}, {shown})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = {
            "Python version": self.python_version,
            "raygo version": __version__,
            "Session": self.address_info["session_dir"],
            "Namespace": self.address_info["namespace"],
        }
        left = "<td style='text-align:left'>"
        cells = "".join(f"<tr>{left}<b>{key}:</b></td>{left}{escape(str(value))}</td></tr>" for key, value in rows.items())
        return f"<table>{cells}</table>"


def init(
    address: str | None = None,
    *,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    include_dashboard: bool | None = None,
    dashboard_host: str = "127.0.0.1",
    dashboard_port: int | None = None,
    job_config: Any = None,
    configure_logging: bool = True,
    logging_level: int | str = "info",
    logging_format: str | None = None,
    logging_config: Any = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: Any = None,
    enable_resource_isolation: bool = False,
    cgroup_path: str | None = None,
    system_reserved_cpu: float | None = None,
    system_reserved_memory: int | None = None,
    proxy_server_url: str | None = None,
    **kwargs: Any,
) -> RayContext:
    """Start a session in this process, or join one.

    The first use of a remote function does it by itself with what is said here by default.

    Parameters
    ----------
    address
        None: what ``RAY_ADDRESS`` names, else a new session in this process.  ``"local"``: a new session.  ``"auto"``: the running one on this
        machine.  ``"unix:<socket>"`` or a session's folder: that one.
    num_cpus, num_gpus, resources
        What the node offers to tasks; by default the machine's CPUs and GPUs.  They bound how much runs at a time, nothing else.
    labels
        Of the node, for label selectors.
    object_store_memory
        Bytes; by default 30 % of memory, and no more than there is.
    ignore_reinit_error
        Answer with the present session instead of raising when there is one.
    job_config, namespace, runtime_env
        Of this driver's work.  Named actors of other namespaces are out of sight unless asked for.
    configure_logging, logging_level, logging_format
        Level and format of the logger ``raygo``.
    logging_config
        A `LoggingConfig` for the root logger of this process, and of workers, instead.
    log_to_driver
        Whether what workers print appears here (it does by default).
    local_mode, include_dashboard, dashboard_host, dashboard_port, enable_resource_isolation, cgroup_path, system_reserved_cpu, \
    system_reserved_memory, proxy_server_url
        Accepted, without effect on a session in this process.

    Returns
    -------
    RayContext
        Where the session is; it may stand in a ``with`` statement.

    Raises
    ------
    RuntimeError
        A session runs in this process already.
    ConnectionError
        There is no session at `address`.
    """
    global _owner
    unknown = sorted(set(kwargs) - _INTERNAL)
    if unknown:
        raise RuntimeError(f"Unknown keyword argument(s): {', '.join(unknown)}")
    _check_arguments(num_cpus, num_gpus, resources, labels, object_store_memory, namespace)
    with _lock:
        if _session.current is not None and _binding.connected():
            if ignore_reinit_error:
                return RayContext(_session.current)
            raise RuntimeError(
                "Maybe you called ray.init twice by accident? This error can be suppressed by passing in 'ignore_reinit_error=True' "
                "or by calling 'ray.shutdown()' prior to 'ray.init()'."
            )
        if _session.current is not None:
            shutdown()  # what is left of a session whose engine has gone
        if logging_config is not None:
            logging_config._apply()
        elif configure_logging and (logging_level not in ("info", 20) or logging_format):
            _configure_logging(logging_level, logging_format)
        config = job_config if job_config is not None else None
        if config is not None:
            namespace = namespace or config.ray_namespace
            runtime_env = runtime_env or config.runtime_env
        hello = _hello(namespace, runtime_env, log_to_driver is not False, config)
        if logging_config is not None:
            import json

            hello["env"]["RAYGO_LOGGING_CONFIG"] = json.dumps(logging_config.to_dict())
        target = _find(address)
        limits = {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources, "labels": labels, "object_store_memory": object_store_memory}
        if target is None:
            welcome = _start(hello, limits, kwargs)
        else:
            given = sorted(key for key, value in limits.items() if value is not None)
            if given:
                raise ValueError(f"When connecting to an existing cluster, {' and '.join(given)} must not be provided.")
            welcome = _connect(target, hello)
        session = _session.begin(welcome)
        if config is not None:
            session.arguments["default_actor_lifetime"] = config.default_actor_lifetime
        _owner = os.getpid()
        _after_start()
        return RayContext(session)


def shutdown(wait_for_processes: bool = False, _exiting_interpreter: bool = False) -> None:
    """End the session: its tasks and actors, and the engine when it runs in this process.

    Without a session it does nothing, and in a worker as well: a worker ends with its node.
    """
    global _logs
    if _binding.is_worker() or (_owner and _owner != os.getpid()):
        return
    with _lock:
        if _session.current is None and not _binding.connected():
            return
        logs, _logs = _logs, None
        if logs is not None:
            logs.drain()
        _session.end()
        try:
            _binding.shutdown(_STOP_S)
        finally:
            if logs is not None:
                logs.join()


def is_initialized() -> bool:
    """Whether this process has a session."""
    return _binding.connected()


def ensure() -> None:
    """Start a session with defaults unless there is one; in a fork of a process that has one, raise."""
    if not _binding.connected():
        if _session.current is not None and _owner != os.getpid():
            from raygo._remote_error import refuse_fork

            raise refuse_fork()
        auto_init()


def auto_init() -> None:
    """What the binding calls when a task is submitted, or a value put, without a session."""
    with _lock:
        if not (_session.current is not None and _binding.connected()):
            init()


# ---- the parts of init


def _check_arguments(num_cpus: Any, num_gpus: Any, resources: Any, labels: Any, object_store_memory: Any, namespace: Any) -> None:
    for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus), ("object_store_memory", object_store_memory)):
        if value is None:
            continue
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, not {value!r}")
        if value < 0:
            raise ValueError(f"{name} cannot be negative, but is {value}")
    if resources is not None:
        from raygo._options import TASK

        TASK["resources"].validate("resources", resources)
    if labels is not None:
        from raygo._options import Option
        from raygo._options import labels as wrong

        Option(dict, lambda value: wrong(value, "labels")).validate("labels", labels)
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError("namespace must be None or a string.")
    if namespace == "":
        raise ValueError('"" is not a valid namespace. Pass None to not specify a namespace.')


def _hello(namespace: str | None, runtime_env: Any, log_to_driver: bool, job_config: Any) -> dict[str, Any]:
    from raygo.runtime_env import canonical_json

    main = getattr(sys.modules.get("__main__"), "__file__", None)
    main_path = os.path.abspath(main) if main else ""
    metadata = dict(getattr(job_config, "metadata", None) or {})
    return {
        "version": __version__,
        "role": "driver",
        "pid": os.getpid(),
        "namespace": namespace or _anonymous(),
        "sys_path": list(getattr(job_config, "_py_driver_sys_path", None) or []) + [os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path],
        "cwd": os.getcwd(),
        "main_path": main_path,
        "executable": sys.executable,
        "runtime_env": canonical_json(runtime_env),
        "log_to_driver": log_to_driver,
        "env": {key: value for key, value in os.environ.items() if key in ("RAYGO_AS_RAY", "RAY_record_ref_creation_sites")},
        "job_name": metadata.get("job_name") or os.path.basename(main_path) or "python",
        "token": os.environ.get("RAY_AUTH_TOKEN", ""),
    }


def _anonymous() -> str:
    """A namespace that nobody else has, in the form of a UUID as Ray's."""
    text = os.urandom(16).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _find(address: str | None) -> str | None:
    """The socket to connect to; None to start an engine here."""
    source = "address"
    if address is None:
        address, source = os.environ.get("RAY_ADDRESS") or None, "RAY_ADDRESS"
    if address is None or address == "local":
        return None
    if not isinstance(address, str):
        raise TypeError(f"address must be a str, not {address!r}")
    if address == "auto":
        other = os.environ.get("RAY_ADDRESS", "")
        if other and other != "auto":
            return _find(other)
        return _newest_socket()
    if address.startswith("unix:"):
        return address[len("unix:") :]
    if address.startswith("/"):
        return address if not os.path.isdir(address) else _socket_of(address)
    if address.startswith("ray://"):
        raise ValueError(f"{source} is {address!r}: raygo has no remote client (ray://). Run the driver on the session's machine, with address='auto'.")
    raise ConnectionError(
        f"{source} is {address!r}: raygo joins sessions of this machine only. Give 'auto', 'unix:<socket>', a session's folder, or 'local' for a new one."
    )


def _newest_socket() -> str:
    """The socket of this user's newest session whose engine runs: with several drivers, the last one started may have ended already."""
    import tempfile

    root = f"{os.environ.get('RAYGO_TMPDIR') or tempfile.gettempdir()}/raygo-{os.getuid()}"
    try:
        names = sorted((name for name in os.listdir(root) if name.startswith("session_")), reverse=True)  # "session_latest", then by time
    except OSError:
        names = []
    for name in names:
        try:
            return _socket_of(f"{root}/{name}")
        except ConnectionError:  # it ended, or is being made
            continue
    raise ConnectionError(f"Could not find any running Ray instance. Start one with raygo.init() in another process; looked in {root}.")


def _socket_of(folder: str) -> str:
    """The socket of the session in a folder."""
    import json

    try:
        with open(f"{folder}/session.json", encoding="utf-8") as f:
            said = json.load(f)
        os.kill(said["pid"], 0)
        socket = str(said["socket"])
    except (OSError, ValueError, KeyError) as error:
        raise ConnectionError(f"{folder} is not the folder of a running session: {error}") from None
    if said.get("ended"):
        raise ConnectionError(f"{folder} is not the folder of a running session: its engine ended at {said['ended']}")
    return socket


def _settings_of_environment() -> dict[str, Any]:
    """What ``RAYGO_<SETTING>`` and ``RAY_<setting>`` variables say; `init`'s _system_config goes before them."""
    found: dict[str, Any] = {}
    for key, kind in _SETTINGS.items():
        for variable in ([f"RAY_{key}"] if key in _RAY_SETTINGS else []) + [f"RAYGO_{key.upper()}"]:
            text = os.environ.get(variable)
            if text:
                try:
                    found[key] = kind(text)
                except ValueError:
                    raise ValueError(f"the variable {variable} is {text!r}, which is no {kind.__name__}") from None
    return found


def _spill_directories(config: Any) -> list[str]:
    """The folders that an ``object_spilling_config`` names.

    Parameters
    ----------
    config : str or dict
        Ray's setting, as JSON or decoded: ``{"type": "filesystem", "params": {"directory_path": folder or [folders]}}``.
    """
    try:
        if isinstance(config, str):
            import json  # it takes as long to import as raygo

            config = json.loads(config)
        kind, folders = config["type"], config["params"]["directory_path"]
    except (ValueError, KeyError, TypeError) as wrong:
        raise ValueError(
            f"object_spilling_config is {config!r}, which lacks {wrong}: it should be "
            '{"type": "filesystem", "params": {"directory_path": "/a/folder"}}, or a list of folders.'
        ) from None
    if kind != "filesystem":
        raise ValueError(f"object_spilling_config names the type {kind!r}; objects can only be spilled to a 'filesystem'.")
    return [folders] if isinstance(folders, str) else list(folders)


def _start(hello: dict[str, Any], limits: dict[str, Any], internal: dict[str, Any]) -> bytes:
    from raygo._calls import error_of, pack

    options: dict[str, Any] = {key: value for key, value in limits.items() if value is not None}
    _name_gpus(options)
    options.update(version=__version__, executable=sys.executable, listen=True)
    folder = internal.get("_temp_dir") or os.environ.get("RAYGO_TMPDIR")
    if folder:
        options["temp_dir"] = os.path.abspath(folder)
    for given, option in (("_node_ip_address", "node_ip"), ("_memory", "memory")):
        if internal.get(given):
            options[option] = internal[given]
    settings = {**_settings_of_environment(), **(internal.get("_system_config") or {})}
    spill = internal.get("_object_spilling_directory")
    if spill:
        options["spill_dirs"] = [spill] if isinstance(spill, str) else list(spill)
    elif settings.get("object_spilling_config"):
        options["spill_dirs"] = _spill_directories(settings["object_spilling_config"])
    settings.pop("object_spilling_config", None)
    options.update((key, settings[key]) for key in _SETTINGS if key in settings)
    # The engine's own copy of the environment dates from when its library was loaded.
    hello["env"] = {**os.environ, **hello["env"]}
    library = os.path.join(_FOLDER, "libraygo.so")
    try:
        return _binding.engine_start(library, pack(options), pack(hello))
    except _binding.CallError as refusal:
        raise error_of(refusal) from None


def _connect(path: str, hello: dict[str, Any]) -> bytes:
    from raygo._calls import pack

    try:
        return _binding.connect(path, pack(hello), _CONNECT_S)
    except _binding.CallError as refusal:
        raise ConnectionError(f"Could not connect to the session at {path}: {refusal.message}") from None


def _name_gpus(options: dict[str, Any]) -> None:
    """Say what is known here of GPUs: which of them this process may use, and who can tell their names."""
    options["gpu_probe"] = os.path.join(_FOLDER, "raygo-gpus")
    if os.environ.get("RAYGO_NVML_LIBRARY"):
        options["nvml_library"] = os.environ["RAYGO_NVML_LIBRARY"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return
    options["cuda_visible_devices"] = visible
    shown = [] if visible in ("", "NoDevFiles", "-1") else visible.split(",")
    if shown and options.get("num_gpus", 0) > len(shown):
        raise ValueError(f"Attempting to start raylet with {options['num_gpus']} GPU, but CUDA_VISIBLE_DEVICES contains {shown}.")


def _after_start() -> None:
    global _logs, _registered
    from raygo._logs import LogPrinter

    _logs = LogPrinter()
    if not _registered:
        import atexit

        _registered = True
        atexit.register(shutdown, True, True)


def _configure_logging(level: int | str, form: str | None) -> None:
    import logging

    logger = logging.getLogger("raygo")
    logger.setLevel(level.upper() if isinstance(level, str) else level)
    if form:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(form))
        logger.handlers[:] = [handler]
        logger.propagate = False
