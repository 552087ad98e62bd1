"""`LoggingConfig`: how log records look, in the driver and in its workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_ENCODINGS = ("TEXT", "JSON")


@dataclass
class LoggingConfig:
    """Form and level of the root logger, for ``init(logging_config=…)``: in the driver and in all its workers.

    Records say of which job, node, worker, task and actor they are.

    Parameters
    ----------
    encoding
        ``"TEXT"`` or ``"JSON"``.
    log_level
        A level's name.
    additional_log_standard_attrs
        Attributes of `logging.LogRecord` to show as well.

    Raises
    ------
    ValueError
        There is no such encoding, or no such attribute.
    """

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.encoding not in _ENCODINGS:
            raise ValueError(f"Invalid encoding type: {self.encoding}. Valid encoding types are: {list(_ENCODINGS)}")
        known = _standard()
        unknown = [name for name in self.additional_log_standard_attrs if name not in known]
        if unknown:
            raise ValueError(f"Unknown python logging standard attribute: {', '.join(map(repr, unknown))}. There are {sorted(known)}")

    def to_dict(self) -> dict[str, Any]:
        """A plain dict."""
        return {"encoding": self.encoding, "log_level": self.log_level, "additional_log_standard_attrs": list(self.additional_log_standard_attrs)}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> LoggingConfig:
        """Undo `to_dict`."""
        return cls(**d)

    def _apply(self) -> None:
        import logging

        handler = logging.StreamHandler()
        handler.setFormatter(_formatter(self))
        root = logging.getLogger()
        root.handlers[:] = [handler]
        root.setLevel(self.log_level)


def _standard() -> set[str]:
    """The attributes that every record has."""
    import logging

    return vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}


def _formatter(config: LoggingConfig) -> Any:
    import json
    import logging

    more, standard = config.additional_log_standard_attrs, _standard()

    def fields_of(record: logging.LogRecord) -> dict[str, Any]:
        found = {name: getattr(record, name, None) for name in more}
        found.update((name, value) for name, value in vars(record).items() if name not in standard)  # logger.info(..., extra=...)
        return {**found, **_place(), "timestamp_ns": int(record.created * 1e9)}

    class Json(logging.Formatter):
        """One object per record."""

        def format(self, record: logging.LogRecord) -> str:
            row = {**fields_of(record), "asctime": self.formatTime(record), "levelname": record.levelname, "message": record.getMessage()}
            row.update(filename=record.filename, lineno=record.lineno)  # last: a record has no "asctime" or "message" before it is formatted
            if record.exc_info:
                row["exc_text"] = self.formatException(record.exc_info)
            return json.dumps(row, default=str)

    class Text(logging.Formatter):
        """A line per record, fields at its end."""

        def formatMessage(self, record: logging.LogRecord) -> str:
            return " ".join([super().formatMessage(record), *(f"{name}={value}" for name, value in fields_of(record).items())])

    return Json() if config.encoding == "JSON" else Text("%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s")


def _place() -> dict[str, str]:
    """Where the running code stands, as far as there is something to say."""
    from raygo import _binding, _session

    if _session.current is None or not _binding.connected():
        return {}
    from raygo.runtime_context import get_runtime_context

    c = get_runtime_context()
    found = {"job_id": c.get_job_id(), "worker_id": c.get_worker_id(), "node_id": c.get_node_id()}
    if _binding.is_worker():
        more = {"actor_id": c.get_actor_id(), "actor_name": c.get_actor_name(), "task_id": c.get_task_id()}
        more |= {"task_name": c.get_task_name(), "task_func_name": c.get_task_function_name()}
        found.update((key, value) for key, value in more.items() if value)
    return found
