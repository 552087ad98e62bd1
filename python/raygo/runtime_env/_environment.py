"""`RuntimeEnv` and its checks."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, ClassVar

from raygo import _session

if TYPE_CHECKING:
    from typing_extensions import Self

_SUPPORTED = ("env_vars", "working_dir", "py_modules", "pip", "uv", "excludes", "config", "worker_process_setup_hook")
HOOK_VARIABLE = "RAYGO_WORKER_SETUP_HOOK"  # how a worker learns of it: a name, or a pickle in base64 after a colon
_LARGEST_HOOK = 64 << 10


class RuntimeEnvConfig(dict[str, Any]):
    """How a runtime environment is built.

    Parameters
    ----------
    setup_timeout_seconds
        How long it may take; -1 for no limit.
    eager_install
        Whether it is built when the session starts rather than at first use.
    log_files
        Accepted.
    """

    known_fields: ClassVar[set[str]] = {"setup_timeout_seconds", "eager_install", "log_files"}

    def __init__(self, setup_timeout_seconds: int = 600, eager_install: bool = True, log_files: list[str] | None = None) -> None:
        super().__init__()
        if not isinstance(setup_timeout_seconds, int) or isinstance(setup_timeout_seconds, bool):
            raise TypeError(f"setup_timeout_seconds must be of type int, got: {type(setup_timeout_seconds)}")
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(f"setup_timeout_seconds must be greater than zero or equals to -1, got: {setup_timeout_seconds}")
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install must be a boolean. got {type(eager_install)}")
        if log_files is not None and not (isinstance(log_files, list) and all(isinstance(path, str) for path in log_files)):
            raise TypeError(f"log_files must be a list of strings, got {log_files!r}")
        self.update(setup_timeout_seconds=setup_timeout_seconds, eager_install=eager_install, log_files=log_files or [])

    @staticmethod
    def parse_and_validate_runtime_env_config(config: dict[str, Any] | RuntimeEnvConfig) -> RuntimeEnvConfig:
        """Make one from a dict."""
        if isinstance(config, RuntimeEnvConfig):
            return config
        unknown = set(config) - RuntimeEnvConfig.known_fields
        if unknown:
            raise ValueError(f"runtime_env['config'] has unknown fields {sorted(unknown)}; there are {sorted(RuntimeEnvConfig.known_fields)}")
        return RuntimeEnvConfig(**config)

    @classmethod
    def default_config(cls) -> Self:
        """One with all defaults."""
        return cls()

    def to_dict(self) -> dict[str, Any]:
        """A plain dict."""
        return dict(self)


class RuntimeEnv(dict[str, Any]):
    """A runtime environment, checked; a dict of the fields that were given.

    Parameters
    ----------
    env_vars
        Variables, on top of the driver's.
    working_dir
        A folder whose copy is the tasks' working folder and stands on ``sys.path``.
    py_modules
        Modules, packages or folders that tasks can import.
    pip, uv
        Packages to install: a list, a requirements file, or a dict with ``packages``.
    worker_process_setup_hook
        A function without arguments, or the name of one (``"module.function"``), that each worker calls before its first task.
    config
        A `RuntimeEnvConfig` or dict.
    py_executable, conda, container, nsight, rocprof_sys, image_uri
        Ray's others: they can be stated, but using one is refused where it would be built.

    Examples
    --------
    >>> RuntimeEnv(env_vars={"LEVEL": "3"})
    RuntimeEnv({'env_vars': {'LEVEL': '3'}})
    """

    known_fields: ClassVar[set[str]] = {
        "py_modules",
        "py_executable",
        "working_dir",
        "excludes",
        "pip",
        "uv",
        "conda",
        "container",
        "env_vars",
        "worker_process_setup_hook",
        "nsight",
        "rocprof_sys",
        "config",
        "image_uri",
        "java_jars",
        "_ray_release",
        "_ray_commit",
        "_inject_current_ray",
    }
    extensions_fields: ClassVar[set[str]] = {"_ray_release", "_ray_commit", "_inject_current_ray"}

    def __init__(
        self,
        *,
        py_modules: list[Any] | None = None,
        py_executable: str | None = None,
        working_dir: str | os.PathLike[str] | None = None,
        pip: Any = None,
        conda: Any = None,
        container: dict[str, Any] | None = None,
        env_vars: dict[str, str] | None = None,
        worker_process_setup_hook: Any = None,
        nsight: Any = None,
        rocprof_sys: Any = None,
        config: Any = None,
        _validate: bool = True,
        image_uri: str | None = None,
        uv: Any = None,
        **kwargs: Any,
    ) -> None:
        given = {
            "py_modules": py_modules,
            "py_executable": py_executable,
            "working_dir": working_dir,
            "pip": pip,
            "uv": uv,
            "conda": conda,
            "container": container,
            "env_vars": env_vars,
            "worker_process_setup_hook": worker_process_setup_hook,
            "nsight": nsight,
            "rocprof_sys": rocprof_sys,
            "config": config,
            "image_uri": image_uri,
            **kwargs,
        }
        super().__init__({key: value for key, value in given.items() if value is not None})
        if _validate:
            for key in list(self):
                self[key] = _check(key, self[key])
            if "pip" in self and "uv" in self:
                raise ValueError("runtime_env has both 'pip' and 'uv': give the packages to one of them")
            if ("pip" in self or "uv" in self) and "conda" in self:
                raise ValueError("The 'pip' field and 'conda' field of runtime_env cannot both be specified.")

    def __repr__(self) -> str:
        return f"RuntimeEnv({dict(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (dict(self),)

    # ---- generic access

    def to_dict(self) -> dict[str, Any]:
        """A plain dict."""
        return dict(self)

    def serialize(self) -> str:
        """Canonical JSON."""
        return json.dumps(self, sort_keys=True, default=_hook_text)

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> Self:
        """Undo `serialize`."""
        return cls(_validate=False, **json.loads(serialized_runtime_env))

    def get(self, name: str, default: Any = None, data_class: Any = None) -> Any:
        """A field, as `data_class` where one is given."""
        value = super().get(name, default)
        if data_class is None or value is None or isinstance(value, data_class):
            return value
        return data_class(**value) if isinstance(value, dict) else data_class(value)

    def set(self, name: str, value: Any) -> None:
        """Set a field, checked."""
        import dataclasses

        self[name] = _check(name, dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value)

    def get_extension(self, key: str) -> Any:
        """One of the internal fields."""
        if key not in self.extensions_fields:
            raise ValueError(f"Extension key must be one of {sorted(self.extensions_fields)}, got: {key}")
        return super().get(key)

    # ---- fields

    def env_vars(self) -> dict[str, str]:
        """The variables."""
        return dict(super().get("env_vars") or {})

    def has_working_dir(self) -> bool:
        """Whether there is a working folder."""
        return bool(super().get("working_dir"))

    def working_dir(self) -> str:
        """Its path or URI."""
        return str(super().get("working_dir") or "")

    def working_dir_uri(self) -> str | None:
        """Its URI; None for a path of this machine."""
        return self.working_dir() if "://" in self.working_dir() else None

    def py_modules(self) -> list[str]:
        """The modules' paths and URIs."""
        return list(super().get("py_modules") or [])

    def py_modules_uris(self) -> list[str]:
        """Those that are URIs."""
        return [path for path in self.py_modules() if "://" in path]

    def py_executable(self) -> str | None:
        """The interpreter."""
        return super().get("py_executable")

    def has_pip(self) -> bool:
        """Whether pip has packages to install."""
        return bool(super().get("pip"))

    def has_uv(self) -> bool:
        """Whether uv has packages to install."""
        return bool(super().get("uv"))

    def pip_config(self) -> dict[str, Any]:
        """What pip installs, as a dict."""
        return dict(super().get("pip") or {})

    def uv_config(self) -> dict[str, Any]:
        """What uv installs, as a dict."""
        return dict(super().get("uv") or {})

    def pip_uri(self) -> str | None:
        """A name for the set of packages."""
        return _uri("pip", super().get("pip"))

    def uv_uri(self) -> str | None:
        """A name for the set of packages."""
        return _uri("uv", super().get("uv"))

    def virtualenv_name(self) -> str | None:
        """An existing environment to use; always None."""
        return None

    def has_conda(self) -> bool:
        """Whether conda is asked for."""
        return bool(super().get("conda"))

    def conda_env_name(self) -> str | None:
        """The conda environment, where it is given by name."""
        conda = super().get("conda")
        return conda if isinstance(conda, str) else None

    def conda_config(self) -> str | None:
        """The conda environment as JSON, where it is given in full."""
        conda = super().get("conda")
        return json.dumps(conda, sort_keys=True) if isinstance(conda, dict) else None

    def conda_uri(self) -> str | None:
        """A name for the conda environment."""
        return _uri("conda", super().get("conda"))

    def java_jars(self) -> list[str]:
        """Ray's field for Java."""
        return list(super().get("java_jars") or [])

    def nsight(self) -> Any:
        """Ray's field for NVIDIA's profiler."""
        return super().get("nsight")

    def rocprof_sys(self) -> Any:
        """Ray's field for AMD's profiler."""
        return super().get("rocprof_sys")

    def image_uri(self) -> str | None:
        """Ray's field for container images."""
        return super().get("image_uri")

    def has_py_container(self) -> bool:
        """Whether a container is asked for."""
        return bool(super().get("container"))

    def py_container_image(self) -> str | None:
        """The container's image."""
        return (super().get("container") or {}).get("image")

    def py_container_worker_path(self) -> str | None:
        """The worker's path in the container."""
        return (super().get("container") or {}).get("worker_path")

    def py_container_run_options(self) -> list[str]:
        """Options of the container's run."""
        return list((super().get("container") or {}).get("run_options") or [])

    def plugins(self) -> list[tuple[str, Any]]:
        """The fields that Ray's plugins would take."""
        return [(key, value) for key, value in self.items() if key not in self.known_fields]

    def plugin_uris(self) -> list[str]:
        """The URIs of the working folder and modules."""
        return [uri for uri in (self.working_dir_uri(), *self.py_modules_uris()) if uri]


def _unpickle(fields: dict[str, Any]) -> RuntimeEnv:
    return RuntimeEnv(_validate=False, **fields)


def _uri(kind: str, value: Any) -> str | None:
    if not value:
        return None
    import hashlib

    return f"{kind}://{hashlib.sha1(json.dumps(value, sort_keys=True).encode(), usedforsecurity=False).hexdigest()}"


def _check(key: str, value: Any) -> Any:
    """One field in its canonical form; TypeError or ValueError when it will not do."""
    if key == "env_vars":
        if not isinstance(value, dict):
            raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], got {type(value)}")
        for name, text in value.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], but has {name!r}: {text!r}")
        return dict(value)
    if key == "working_dir":
        if not isinstance(value, (str, os.PathLike)):
            raise TypeError(f"`working_dir` must be a string (either a local path or remote URI), got {type(value)}.")
        return _path(os.fspath(value), "working_dir")
    if key == "py_modules":
        if not isinstance(value, list):
            raise TypeError(f"`py_modules` must be a list of strings, local paths or imported modules, got {type(value)}.")
        return [_module(entry) for entry in value]
    if key in ("pip", "uv"):
        return _packages(key, value)
    if key == "excludes":
        if not isinstance(value, list) or not all(isinstance(pattern, str) for pattern in value):
            raise TypeError(f"runtime_env['excludes'] must be a list of strings, got {value!r}")
        return list(value)
    if key == "worker_process_setup_hook":
        if not callable(value) and not (isinstance(value, str) and "." in value):
            raise TypeError(f"worker_process_setup_hook must be a function or the name of one, as 'module.function', got {value!r}")
        return value
    if key == "config":
        return dict(RuntimeEnvConfig.parse_and_validate_runtime_env_config(value))
    return value


def _path(path: str, field: str) -> str:
    if "://" in path:
        return path
    full = os.path.abspath(os.path.expanduser(path))
    if not os.path.exists(full):
        raise ValueError(f"runtime_env['{field}'] is {path!r}, which does not exist (looked at {full})")
    return full


def _module(entry: Any) -> str:
    if isinstance(entry, (str, os.PathLike)):
        return _path(os.fspath(entry), "py_modules")
    places = getattr(entry, "__path__", None)
    if places:
        return os.path.abspath(list(places)[0])
    file = getattr(entry, "__file__", None)
    if not file:
        raise TypeError(f"runtime_env['py_modules'] takes paths and imported modules, not {entry!r}")
    return os.path.abspath(file)


def _packages(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        with open(os.path.expanduser(value), encoding="utf-8") as f:
            value = [line.strip() for line in f if line.strip() and not line.lstrip().startswith("#")]
    if isinstance(value, (list, tuple)):
        value = {"packages": list(value)}
    if not isinstance(value, dict):
        raise TypeError(f"runtime_env['{key}'] must be a list of packages, a requirements file or a dict, got {type(value)}")
    value = dict(value)
    packages = value.get("packages")
    if isinstance(packages, str):
        value["packages"] = packages = _packages(key, packages)["packages"]
    if not isinstance(packages, list) or not all(isinstance(package, str) for package in packages):
        raise TypeError(f"runtime_env['{key}']['packages'] must be a list of strings, got {packages!r}")
    return value


def _hook_text(hook: Any) -> str:
    if isinstance(hook, str):
        return hook
    import base64

    from raygo._capture import dumps

    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    data = dumps(hook, f"worker_process_setup_hook {name}", hook)
    if len(data) > _LARGEST_HOOK:
        raise ValueError(f"worker_process_setup_hook {name} takes {len(data)} bytes with all that it mentions, and may {_LARGEST_HOOK}: load data inside of it")
    return ":" + base64.b64encode(data).decode()


def run_hook(text: str) -> None:
    """In a new worker: call what `HOOK_VARIABLE` says."""
    if text.startswith(":"):
        import base64
        import pickle

        hook = pickle.loads(base64.b64decode(text[1:]))
    else:
        import importlib

        module, _, name = text.rpartition(".")
        hook = getattr(importlib.import_module(module), name)
    hook()


def canonical_json(environment: Any, parent: str | None = None) -> str:
    """The JSON that the engine gets: checked, with what the job's environment adds; "" for none of its own.

    Parameters
    ----------
    environment
        A dict or `RuntimeEnv`, or None.
    parent
        JSON of what it is on top of; None: that of the session.
    """
    if not environment:
        return ""
    if not isinstance(environment, dict):
        raise TypeError(f"runtime_env must be a dict or a RuntimeEnv, got {type(environment)}")
    checked = dict(environment) if isinstance(environment, RuntimeEnv) else dict(RuntimeEnv(**environment))
    refused = sorted(set(checked) - set(_SUPPORTED))
    if refused:
        raise ValueError(f"runtime_env has {refused}, which raygo cannot build; it knows {list(_SUPPORTED)}")
    if parent is None and _session.current is not None:
        parent = _session.current.runtime_env
    inherited: dict[str, Any] = json.loads(parent) if parent else {}
    hook = checked.pop("worker_process_setup_hook", None)
    variables = {**inherited.get("env_vars", {}), **checked.get("env_vars", {}), **({HOOK_VARIABLE: _hook_text(hook)} if hook else {})}
    merged = {**inherited, **checked}
    if variables:
        merged["env_vars"] = variables
    if "pip" in checked:
        merged.pop("uv", None)
    elif "uv" in checked:
        merged.pop("pip", None)
    return json.dumps(merged, sort_keys=True, separators=(",", ":"))
