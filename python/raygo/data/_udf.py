"""Users' functions as transforms of blocks, and the options of the tasks that run them."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import raygo
from raygo.data import _block
from raygo.data._block import Block

_LATER = ("compute", "fn_constructor_args", "fn_constructor_kwargs", "ray_remote_args_fn", "label_selector", "fallback_strategy", "max_calls")


def missing(what: str, instead: str = "") -> NotImplementedError:
    """The error for what raygo.data does not have yet."""
    return NotImplementedError(f"{what} is not there yet in raygo.data" + (f": {instead}" if instead else ""))


def task_options(method: str, given: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The options that were given, as `raygo.remote` takes them; raises for those that raygo.data lacks."""
    for name in _LATER:
        if given.pop(name, None) is not None:
            raise missing(f"{method}({name}=...)")
    options = {name: value for name, value in given.items() if value is not None}
    concurrency = options.get("concurrency")
    if concurrency is not None and (not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1):
        raise ValueError(f"{method}: concurrency is {concurrency!r}: give the number of tasks that may run at once")
    # Here, so that an option that no task can have fails where it was given.
    raygo.remote(**{name: value for name, value in options.items() if name != "concurrency"} or {"num_returns": 1})(missing)
    return tuple(sorted(options.items()))


def prepare(method: str, fn: Any, args: Iterable[Any] | None, kwargs: dict[str, Any] | None) -> Callable[[Any], Any]:
    """The user's function with its further arguments."""
    if inspect.isclass(fn):
        raise missing(f"{method} with a class ({fn.__name__})", "give a function; what is costly to make can be kept in a global of it")
    if not callable(fn):
        raise TypeError(f"{method} takes a function, not {fn!r}")
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise missing(f"{method} with an async function ({fn.__name__})")
    # Rows and batches come first, as Ray passes them.
    return _WithArguments(fn, tuple(args or ()), dict(kwargs or {})) if args or kwargs else fn


class _WithArguments:
    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._fn, self._args, self._kwargs = fn, args, kwargs

    def __call__(self, item: Any) -> Any:
        return self._fn(item, *self._args, **self._kwargs)


def over_rows(fn: Callable[[Any], Any]) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``map``."""
    return functools.partial(_over_rows, fn)


def _over_rows(fn: Callable[[Any], Any], blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield _rows([_row(fn(row), "map") for row in _block.iter_rows(block)], "the function given to map", block)


def over_rows_flat(fn: Callable[[Any], Any]) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``flat_map``."""
    return functools.partial(_over_rows_flat, fn)


def _over_rows_flat(fn: Callable[[Any], Any], blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield _rows([_row(made, "flat_map") for row in _block.iter_rows(block) for made in fn(row)], "the function given to flat_map", block)


def _row(made: Any, method: str) -> Any:
    if not isinstance(made, dict):
        raise ValueError(f"the function given to {method} gave a {type(made).__name__}: give a dict for every row")
    return made


def _rows(rows: list[Any], what: str, block: Block) -> Block:
    return _block.from_rows(rows, what) if rows else _block.cut(block, 0, 0)


def keeping(fn: Callable[[Any], Any]) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``filter``."""
    return functools.partial(_keeping, fn)


def _keeping(fn: Callable[[Any], Any], blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        kept = [index for index, row in enumerate(_block.iter_rows(block)) if fn(row)]
        yield _block.take(block, kept) if kept else _block.cut(block, 0, 0)


def over_batches(fn: Callable[[Any], Any], batch_size: int | None, batch_format: str, copy: bool) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``map_batches``."""
    return functools.partial(_over_batches, fn, batch_size, batch_format, copy)


def _over_batches(fn: Callable[[Any], Any], batch_size: int | None, batch_format: str, copy: bool, blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        rows = _block.num_rows(block)
        if not rows:
            yield block
        for start in range(0, rows, batch_size or max(rows, 1)):
            batch = _block.to_batch(_block.cut(block, start, min(rows, start + (batch_size or rows))), batch_format)
            if copy:
                batch = {name: values.copy() for name, values in batch.items()} if batch_format == "numpy" else batch.copy() \
                    if batch_format == "pandas" else batch
            made = fn(batch)
            for one in made if inspect.isgenerator(made) else (made,):
                yield _block.from_batch(one, "the function given to map_batches")


def columns_only(names: list[str]) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``select_columns``."""
    return functools.partial(_columns_only, names)


def _columns_only(names: list[str], blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        _have(block, names)
        yield block.select(names) if _block.is_table(block) else block[names]


def columns_without(names: list[str]) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``drop_columns``."""
    return functools.partial(_columns_without, names)


def _columns_without(names: list[str], blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        _have(block, names)
        yield block.drop_columns(names) if _block.is_table(block) else block.drop(columns=names)


def columns_renamed(names: dict[str, str]) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``rename_columns``."""
    return functools.partial(_columns_renamed, names)


def _columns_renamed(names: dict[str, str], blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        _have(block, list(names))
        if _block.is_table(block):
            yield block.rename_columns([names.get(name, name) for name in block.column_names])
        else:
            yield block.rename(columns=names)


def column_added(name: str, fn: Callable[[Any], Any], batch_format: str) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """``add_column``."""
    return functools.partial(_column_added, name, fn, batch_format)


def _column_added(name: str, fn: Callable[[Any], Any], batch_format: str, blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        columns = _block.to_numpy(block)
        values = fn(_block.to_batch(block, batch_format))
        columns[name] = values.to_numpy() if hasattr(values, "to_numpy") else values
        yield _block.from_columns(columns, "the function given to add_column")


def _have(block: Block, names: list[str]) -> None:
    known = block.column_names if _block.is_table(block) else list(block.columns)
    absent = [name for name in names if name not in known]
    if absent and (known or _block.num_rows(block)):
        raise ValueError(f"there is no column {', '.join(map(repr, absent))}: the columns are {', '.join(map(repr, known))}")
