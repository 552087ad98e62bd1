"""`LoggingConfig`: how this process's log records look."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_ENCODINGS = ("TEXT", "JSON")


@dataclass
class LoggingConfig:
    """Form and level of the root logger, for ``init(logging_config=…)``.

    Parameters
    ----------
    encoding
        ``"TEXT"`` or ``"JSON"``.
    log_level
        A level's name.
    additional_log_standard_attrs
        Attributes of `logging.LogRecord` to show as well.
    """

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.encoding not in _ENCODINGS:
            raise ValueError(f"Invalid encoding type: {self.encoding}. Valid encoding types are: {list(_ENCODINGS)}")

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


def _formatter(config: LoggingConfig) -> Any:
    import json
    import logging

    extra = config.additional_log_standard_attrs

    class Json(logging.Formatter):
        """One object per record."""

        def format(self, record: logging.LogRecord) -> str:
            row: dict[str, Any] = {"asctime": self.formatTime(record), "levelname": record.levelname, "message": record.getMessage()}
            row.update(filename=record.filename, lineno=record.lineno, **{name: getattr(record, name, None) for name in extra})
            if record.exc_info:
                row["exc_text"] = self.formatException(record.exc_info)
            return json.dumps(row, default=str)

    if config.encoding == "JSON":
        return Json()
    more = "".join(f" {name}=%({name})s" for name in extra)
    return logging.Formatter(f"%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s{more}")
