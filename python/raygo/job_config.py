"""What a driver says of its job."""

from __future__ import annotations

import json
from typing import Any


class JobConfig:
    """Settings of one driver's job, for ``init(job_config=…)``.

    Parameters
    ----------
    runtime_env
        For all its tasks and actors.
    metadata
        Text by name; ``job_name`` names the job.
    ray_namespace
        For named actors; None: one of its own.
    default_actor_lifetime
        ``"detached"`` or ``"non_detached"``.
    jvm_options, code_search_path
        For Java and C++ workers, which raygo does not start: kept, without effect.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _disable_job_level_lineage_reconstruction: bool = False,
        _py_driver_sys_path: list[str] | None = None,
    ) -> None:
        if isinstance(code_search_path, str):
            raise TypeError("The type of code search path is incorrect: it is a list of paths")
        self.jvm_options = jvm_options or []
        self.code_search_path = code_search_path or []
        self.metadata: dict[str, str] = {}
        for key, value in (metadata or {}).items():
            self.set_metadata(key, value)
        self.ray_namespace = ray_namespace
        self._client_job = _client_job
        self._py_driver_sys_path = _py_driver_sys_path or []
        self.py_logging_config: Any = None
        self.set_runtime_env(runtime_env)
        self.set_default_actor_lifetime(default_actor_lifetime)

    def set_metadata(self, key: str, value: str) -> None:
        """Set one entry of the metadata."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"job metadata maps str to str, not {key!r}: {value!r}")
        self.metadata[key] = value

    def set_runtime_env(self, runtime_env: dict[str, Any] | None, validate: bool = False) -> None:
        """Set the runtime environment; `validate` checks it now rather than at `init`."""
        if validate and runtime_env:
            from raygo.runtime_env import RuntimeEnv

            runtime_env = RuntimeEnv(**runtime_env)
        self.runtime_env = runtime_env or {}

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Set the namespace."""
        self.ray_namespace = ray_namespace

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Set how long actors live that do not say: ``"detached"`` or ``"non_detached"``."""
        if default_actor_lifetime not in ("detached", "non_detached"):
            raise ValueError('Default actor lifetime must be one of "detached", "non_detached"')
        self.default_actor_lifetime = default_actor_lifetime

    def set_py_logging_config(self, logging_config: Any = None) -> None:
        """Set the logging configuration of the driver."""
        self.py_logging_config = logging_config

    def ensure_logging_config(self, logging_config: Any = None) -> None:
        """Set it unless there is one."""
        if self.py_logging_config is None:
            self.py_logging_config = logging_config

    @classmethod
    def from_json(cls, job_config_json: str | dict[str, Any]) -> JobConfig:
        """Make one from JSON with the parameters' names (``namespace`` too)."""
        fields = json.loads(job_config_json) if isinstance(job_config_json, str) else dict(job_config_json)
        return cls(
            jvm_options=fields.get("jvm_options"),
            code_search_path=fields.get("code_search_path"),
            runtime_env=fields.get("runtime_env"),
            metadata=fields.get("metadata"),
            ray_namespace=fields.get("ray_namespace") or fields.get("namespace"),
            default_actor_lifetime=fields.get("default_actor_lifetime", "non_detached"),
            _client_job=fields.get("client_job", False),
            _py_driver_sys_path=fields.get("py_driver_sys_path"),
        )
