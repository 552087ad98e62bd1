"""Questions to the engine (RG_CALL): msgpack there and back, its refusals as exceptions."""

from __future__ import annotations

from typing import Any

from raygo import _binding


def pack(value: Any) -> bytes:
    """Encode plain values for the engine."""
    return _binding.pack(value)


def unpack(data: bytes) -> Any:
    """Decode what the engine sent."""
    return _binding.unpack(data)


def call(method: str, argument: Any = None, timeout: float | None = None) -> Any:
    """Ask the engine.

    Parameters
    ----------
    method, argument
        As engine/wire/PROTOCOL.md lists them.
    timeout
        Seconds; None waits for ever.

    Raises
    ------
    RayError, ValueError, RuntimeError
        What ``capi/errors.tsv`` names for the engine's refusal.
    """
    try:
        return unpack(_binding.call(pack([method, argument]), timeout))
    except _binding.CallError as refusal:
        raise error_of(refusal) from None


def error_of(refusal: _binding.CallError) -> BaseException:
    """The public exception of a refused call."""
    from raygo._remote_error import by_code

    return by_code(refusal.code, refusal.message)
