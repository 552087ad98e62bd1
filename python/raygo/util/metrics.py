"""Counters, gauges and histograms of the application, for Prometheus.

Values are gathered in the process and go to the engine a few times a second in one call, so that recording costs a dict update.
"""
from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Sequence
from typing import Any

from raygo import _session

__all__ = ["Counter", "Gauge", "Histogram", "Metric"]

_NAME = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
_FLUSH_S = 0.25


class Metric:
    """What the three kinds share.

    Parameters
    ----------
    name : str
        As Prometheus allows it.
    description : str
        One line for people.
    tag_keys : tuple of str, optional
        The names of its tags.
    """

    _type = ""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a metric's name is a str, not {type(name).__name__}")
        if not name:
            raise ValueError("Empty name is not allowed. Please provide a metric name.")
        if not _NAME.match(name):
            raise ValueError(f"Invalid metric name: {name!r}. Letters, digits, '_' and ':' may be used, and it must not start with a digit.")
        keys = tag_keys or ()
        if not isinstance(keys, (tuple, list)):
            raise TypeError(f"`tag_keys` should be a tuple of str, got: {type(keys).__name__}")
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"The type of tag key must be str, got {type(key).__name__}: {key!r}")
        self._name = name
        self._description = description
        self._tag_keys = tuple(keys)
        self._default_tags: dict[str, str] = {}

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys and default tags."""
        return {"name": self._name, "description": self._description, "tag_keys": self._tag_keys,
                "default_tags": dict(self._default_tags)}

    def set_default_tags(self, default_tags: dict[str, str]) -> Metric:
        """Give tags that each value carries unless it says otherwise.

        Returns
        -------
        Metric
            This one, so that calls can be chained.
        """
        for key, value in default_tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}: {self._name} was made with tag_keys={self._tag_keys}")
            if not isinstance(value, str):
                raise TypeError(f"The type of tag value must be str, got {type(value).__name__} for {key}")
        self._default_tags = dict(default_tags)
        return self

    def _tags(self, tags: dict[str, str] | None) -> tuple[tuple[str, str], ...]:
        found = dict(self._default_tags)
        for key, value in (tags or {}).items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}: {self._name} was made with tag_keys={self._tag_keys}")
            if not isinstance(value, str):
                raise TypeError(f"The type of tag value must be str, got {type(value).__name__} for {key}")
            found[key] = value
        missing = [key for key in self._tag_keys if key not in found]
        if missing:
            raise ValueError(f"Missing value for tag key(s): {', '.join(missing)} of {self._name}.")
        return tuple(sorted(found.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._name, self._description, self._tag_keys, self._default_tags, self._extra())

    def _extra(self) -> dict[str, Any]:
        return {}


def _rebuild(cls: type[Metric], name: str, description: str, tag_keys: tuple[str, ...], default_tags: dict[str, str],
             extra: dict[str, Any]) -> Metric:
    return cls(name, description, tag_keys=tag_keys, **extra).set_default_tags(default_tags)


class Counter(Metric):
    """A number that only grows.

    Examples
    --------
    >>> requests = Counter("requests", description="Requests answered", tag_keys=("route",))
    >>> requests.inc(tags={"route": "/"})            # doctest: +SKIP
    """

    _type = "counter"

    def inc(self, value: int | float = 1.0, tags: dict[str, str] | None = None) -> None:
        """Add `value`, which must be above zero."""
        _number(value, self)
        if value <= 0:
            raise ValueError(f"value must be >0, got {value}: a counter only grows, use a Gauge for what goes both ways")
        _recorder.add(self, self._tags(tags), float(value))


class Gauge(Metric):
    """A number that goes up and down."""

    _type = "gauge"

    def set(self, value: int | float | None, tags: dict[str, str] | None = None) -> None:
        """Make it `value`; None is passed over."""
        if value is None:
            return
        _number(value, self)
        _recorder.add(self, self._tags(tags), float(value))


class Histogram(Metric):
    """Counts of values by size.

    Parameters
    ----------
    boundaries : list of float
        The upper ends of the buckets, above zero and ascending.
    """

    _type = "histogram"

    def __init__(self, name: str, description: str = "", boundaries: Sequence[float] | None = None,
                 tag_keys: tuple[str, ...] | None = None) -> None:
        super().__init__(name, description, tag_keys)
        bounds = list(boundaries or [])
        if not bounds:
            raise ValueError(f"histogram {name}: `boundaries` needs at least one number, e.g. boundaries=[0.1, 1, 10]")
        for index, bound in enumerate(bounds):
            if bound <= 0:
                raise ValueError(f"Invalid `boundaries` of histogram {name}: {bound} is not above zero")
            if index and bound <= bounds[index - 1]:
                raise ValueError(f"Invalid `boundaries` of histogram {name}: {bound} does not ascend from {bounds[index - 1]}")
        self.boundaries = [float(b) for b in bounds]

    def observe(self, value: int | float, tags: dict[str, str] | None = None) -> None:
        """Count `value`."""
        _number(value, self)
        _recorder.add(self, self._tags(tags), float(value))

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys, default tags and boundaries."""
        return {**super().info, "boundaries": list(self.boundaries)}

    def _extra(self) -> dict[str, Any]:
        return {"boundaries": self.boundaries}


def prometheus_text() -> str:
    """All metrics of the session in Prometheus' text format."""
    from raygo._calls import call

    _recorder.flush()
    return str(call("metrics.text"))


def _number(value: Any, metric: Metric) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            float(value)         # NumPy's numbers are fine
        except (TypeError, ValueError):
            raise TypeError(f"value of {metric!r} must be int or float, got {type(value).__name__}.") from None


class _Recorder:
    """Gathers values and sends them from one short-lived thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sums: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[Metric, float]] = {}
        self.samples: list[tuple[Metric, tuple[tuple[str, str], ...], float]] = []
        self.running = False
        self.hooked = False

    def add(self, metric: Metric, tags: tuple[tuple[str, str], ...], value: float) -> None:
        with self.lock:
            if metric._type == "histogram":
                self.samples.append((metric, tags, value))
            else:
                key = (metric._type, metric._name, tags)
                before = self.sums[key][1] if metric._type == "counter" and key in self.sums else 0.0
                self.sums[key] = (metric, before + value)
            if self.running:
                return
            self.running = True
            if not self.hooked:
                self.hooked = True
                _session.on_end.append(self.flush)
                atexit.register(self.flush)
        threading.Thread(target=self._later, name="raygo-metrics", daemon=True).start()

    def _later(self) -> None:
        threading.Event().wait(_FLUSH_S)      # gathers what comes meanwhile; nothing signals it
        with self.lock:
            self.running = False
        self.flush()

    def flush(self) -> None:
        """Send what was gathered; without a session it waits for one."""
        if _session.current is None:
            return
        with self.lock:
            sums, self.sums = self.sums, {}
            samples, self.samples = self.samples, []
        records = [_record(metric, tags, value) for (_, _, tags), (metric, value) in sums.items()]
        records += [_record(metric, tags, value) for metric, tags, value in samples]
        if not records:
            return
        from raygo._calls import call
        from raygo.exceptions import RayError

        try:
            call("metrics.record", records)
        except (RayError, RuntimeError):
            return      # the session ended in the meantime, and its metrics with it


def _record(metric: Metric, tags: tuple[tuple[str, str], ...], value: float) -> dict[str, Any]:
    return {"name": metric._name, "type": metric._type, "description": metric._description, "tags": dict(tags), "value": value,
            "buckets": getattr(metric, "boundaries", [])}


_recorder = _Recorder()


def _after_fork() -> None:
    """The thread of the parent is not here, and what it gathered is the parent's to send."""
    global _recorder
    _recorder = _Recorder()


os.register_at_fork(after_in_child=_after_fork)
