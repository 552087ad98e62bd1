"""Nested dicts."""
from __future__ import annotations

from copy import deepcopy
from typing import Any

__all__ = ["deep_update", "flatten_dict", "merge_dicts", "unflattened_lookup"]

_REQUIRED = object()


def flatten_dict(dt: dict[str, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False) -> dict[str, Any]:
    """One dict of a nested one, with ``a/b`` for b within a; empty dicts are left out.

    Parameters
    ----------
    dt : dict
        The nested one.
    delimiter : str
        What stands between two names.
    prevent_delimiter : bool
        Refuse names that have it in them.
    flatten_list : bool
        Take lists apart too; the names are the places.

    Examples
    --------
    >>> flatten_dict({"a": {"b": 1}, "c": [2]})
    {'a/b': 1, 'c': [2]}
    """
    flat: dict[str, Any] = {}
    for key, value in dt.items():
        if prevent_delimiter and delimiter in str(key):
            raise ValueError(f"Found delimiter `{delimiter}` in key {key!r} when trying to flatten array: name it otherwise, or choose another delimiter")
        inner: dict[Any, Any] | None = value if isinstance(value, dict) else dict(enumerate(value)) if flatten_list and isinstance(value, list) else None
        if inner is None:
            flat[key] = value
        else:
            flat.update({f"{key}{delimiter}{name}": item for name, item in flatten_dict(inner, delimiter, prevent_delimiter, flatten_list).items()})
    return flat


def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **kwargs: Any) -> Any:
    """What ``a/b`` is in a nested dict or list.

    Parameters
    ----------
    flat_key : str
        The name.
    lookup : dict or list
        The nested one.
    delimiter : str
        What stands between two names.
    **kwargs
        ``default``: what to return if there is no such thing, instead of a KeyError.

    Examples
    --------
    >>> unflattened_lookup("a/1", {"a": [5, 6]})
    6
    """
    default = kwargs.pop("default", _REQUIRED)
    if kwargs:
        raise TypeError(f"unflattened_lookup() has no parameter {', '.join(kwargs)}")
    value = lookup
    for name in flat_key.split(delimiter):
        try:
            value = value[int(name) if isinstance(value, (list, tuple)) else name]
        except (KeyError, IndexError, TypeError, ValueError):
            if default is _REQUIRED:
                raise KeyError(name) from None
            return default
    return value


def merge_dicts(d1: dict[str, Any], d2: dict[str, Any]) -> dict[str, Any]:
    """A copy of the first, with what the second has put over it.

    Examples
    --------
    >>> merge_dicts({"a": {"b": 1}}, {"a": {"c": 2}})
    {'a': {'b': 1, 'c': 2}}
    """
    return deep_update(deepcopy(d1), d2, True, [])


def deep_update(original: dict[str, Any], new_dict: dict[str, Any], new_keys_allowed: bool = False, allow_new_subkey_list: list[str] | None = None,
                override_all_if_type_changes: list[str] | None = None, override_all_key_list: list[str] | None = None) -> dict[str, Any]:
    """Put one dict over another, which is changed and returned.

    Parameters
    ----------
    original, new_dict : dict
        The two.
    new_keys_allowed : bool
        Whether there may be keys that the original does not have.
    allow_new_subkey_list : list of str, optional
        Keys in whose values there may be new keys in any case.
    override_all_if_type_changes : list of str, optional
        Keys whose values are replaced, not merged, if their ``"type"`` is another.
    override_all_key_list : list of str, optional
        Keys whose values are always replaced.
    """
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise ValueError(f"Unknown config parameter `{key}`: there are {', '.join(map(str, original))}")
        old = original.get(key)
        if not isinstance(old, dict) or not isinstance(value, dict) or key in (override_all_key_list or ()):
            original[key] = value
        elif key in (override_all_if_type_changes or ()) and "type" in value and value["type"] != old.get("type"):
            original[key] = value
        else:
            deep_update(old, value, new_keys_allowed or key in (allow_new_subkey_list or ()))
    return original
