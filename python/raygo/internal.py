"""Ray's ``ray.internal``: `free`."""

from __future__ import annotations

from typing import Any

__all__ = ["free"]


def free(object_refs: Any, local_only: bool = False) -> None:
    """Give up values although references to them are left.

    The store's memory comes back as soon as no view of them is left.  Whoever asks for one afterwards gets `ObjectFreedError`; a small value that a
    process has received already stays readable there.  A value that is not there yet is not touched.

    Parameters
    ----------
    object_refs : ObjectRef or list of ObjectRef
    local_only
        Without effect: there is one copy of a value.

    Examples
    --------
    >>> ref = raygo.put(bytes(10**6))  # doctest: +SKIP
    >>> raygo.internal.free([ref])  # doctest: +SKIP
    """
    from raygo._calls import call
    from raygo._ids import ObjectRef

    refs = [object_refs] if isinstance(object_refs, ObjectRef) else object_refs
    if not isinstance(refs, (list, tuple)):
        raise TypeError(f"free() takes an ObjectRef or a list of them, not a {type(refs).__name__}")
    for ref in refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"free() takes ObjectRefs; its list holds a {type(ref).__name__}")
    if refs:
        call("objects.free", {"objects": [[ref._task, ref._index] for ref in refs]})
