"""Datasets: rows in blocks, and what is to be done with them."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import raygo
from raygo.data import _block, _exchange, _plan, _udf
from raygo.data._block import Block
from raygo.data._udf import missing
from raygo.data.iterator import DataIterator

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dataset", "MaterializedDataset", "Schema"]


class Schema:
    """The names and types of a dataset's columns."""

    def __init__(self, base_schema: Any) -> None:
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[Any]:
        """Their Arrow types."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.base_schema.equals(other.base_schema)

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __repr__(self) -> str:
        width = max([6, *map(len, self.names)])
        lines = [f"{'Column':<{width}}  Type", f"{'------':<{width}}  ----"]
        return "\n".join([*lines, *(f"{name:<{width}}  {kind}" for name, kind in zip(self.names, self.types, strict=True))])


class Dataset:
    """Rows that are spread over blocks; made by `raygo.data.range`, `from_pandas`, `read_parquet` and so on.

    Transforms are remembered and run, as tasks over the blocks, when the rows are asked for; `materialize` keeps what they give.

    Examples
    --------
    >>> import raygo.data
    >>> squares = raygo.data.range(4).map(lambda row: {"square": row["id"] ** 2})     # doctest: +SKIP
    >>> squares.take_all()                                                            # doctest: +SKIP
    [{'square': 0}, {'square': 1}, {'square': 4}, {'square': 9}]
    """

    def __init__(self, step: _plan.Step) -> None:
        self._step = step
        self._schema: Schema | None = None

    # ---- what is in it

    def count(self) -> int:
        """The number of rows."""
        return sum(piece.rows for piece in _plan.run(self._step))

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """The columns and their types, as the first block has them; None where there is no row.

        Parameters
        ----------
        fetch_if_missing : bool
            Make the first blocks to see, where they are not there yet.
        """
        if self._schema is None and (fetch_if_missing or isinstance(self._step, _plan.Blocks)):
            for piece in _plan.run(self._step):
                if piece.schema is not None and len(piece.schema.names):
                    self._schema = Schema(piece.schema)
                    if piece.rows:
                        break
        return self._schema

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """The names of the columns."""
        schema = self.schema(fetch_if_missing)
        return schema.names if schema is not None else None

    def size_bytes(self) -> int:
        """The memory that the blocks take, about."""
        return sum(_block.num_bytes(block) for block in self.iterator()._blocks())

    def iterator(self) -> DataIterator:
        """An iterator that can be handed to a task or an actor."""
        return DataIterator(self._step)

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """The rows, as dicts."""
        return self.iterator().iter_rows()

    def iter_batches(self, *, prefetch_batches: int = 1, batch_size: int | None = 256, batch_format: str | None = "default", drop_last: bool = False,
                     local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None,
                     _collate_fn: Callable[[Any], Any] | None = None) -> Iterable[Any]:
        """The rows in batches; see `DataIterator.iter_batches`."""
        return self.iterator().iter_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, batch_format=batch_format, drop_last=drop_last,
                                            local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed,
                                            _collate_fn=_collate_fn)

    def iter_torch_batches(self, *, prefetch_batches: int = 1, batch_size: int | None = 256, dtypes: Any = None, device: Any = "auto",
                           collate_fn: Callable[[dict[str, Any]], Any] | None = None, drop_last: bool = False,
                           local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None,
                           pin_memory: bool = False) -> Iterable[Any]:
        """The rows in batches of torch tensors; see `DataIterator.iter_torch_batches`."""
        return self.iterator().iter_torch_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, dtypes=dtypes, device=device,
                                                  collate_fn=collate_fn, drop_last=drop_last, local_shuffle_buffer_size=local_shuffle_buffer_size,
                                                  local_shuffle_seed=local_shuffle_seed, pin_memory=pin_memory)

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows."""
        return list(self.limit(limit).iter_rows())

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows; raises where there are more than `limit`."""
        rows = list(itertools.islice(self.iter_rows(), None if limit is None else limit + 1))
        if limit is not None and len(rows) > limit:
            raise ValueError(f"the dataset has more than limit={limit} rows: take_all gives all of them into this process; use take(n) for the first")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """The first rows as one batch."""
        for batch in self.limit(batch_size).iter_batches(batch_size=batch_size, batch_format=batch_format):
            return batch
        raise ValueError("take_batch: the dataset has no rows")

    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)

    def to_pandas(self, limit: int | None = None) -> pd.DataFrame:
        """All rows as one frame in this process; raises where there are more than `limit`."""
        import pandas as pd

        blocks = []
        rows = 0
        for block in self.iterator()._blocks():
            blocks.append(block)
            rows += _block.num_rows(block)
            if limit is not None and rows > limit:
                raise ValueError(f"the dataset has more than limit={limit} rows: to_pandas brings all of them into this process")
        if not blocks:
            names = self.columns() or []
            return pd.DataFrame({name: [] for name in names})
        return _block.to_pandas(_block.concat(blocks))

    # ---- transforms

    def map(self, fn: Callable[..., dict[str, Any]], *, fn_args: Any = None, fn_kwargs: dict[str, Any] | None = None, **ray_remote_args: Any) -> Dataset:
        """Apply a function to each row.

        Parameters
        ----------
        fn : callable
            Takes a row, a dict, and gives one.
        fn_args, fn_kwargs : optional
            Further arguments of it.
        **ray_remote_args
            ``num_cpus``, ``num_gpus``, ``memory``, ``concurrency`` and so on of the tasks.
        """
        return self._mapped("map", fn, fn_args, fn_kwargs, _udf.over_rows, ray_remote_args)

    def flat_map(self, fn: Callable[..., list[dict[str, Any]]], *, fn_args: Any = None, fn_kwargs: dict[str, Any] | None = None,
                 **ray_remote_args: Any) -> Dataset:
        """Apply a function that gives any number of rows for each row; the parameters are those of `map`."""
        return self._mapped("flat_map", fn, fn_args, fn_kwargs, _udf.over_rows_flat, ray_remote_args)

    def filter(self, fn: Callable[..., bool] | None = None, expr: Any = None, *, fn_args: Any = None, fn_kwargs: dict[str, Any] | None = None,
               **ray_remote_args: Any) -> Dataset:
        """Keep the rows for which a function gives something true; the other parameters are those of `map`."""
        if expr is not None:
            raise missing("Dataset.filter(expr=...)", "give a function of a row")
        return self._mapped("filter", fn, fn_args, fn_kwargs, _udf.keeping, ray_remote_args)

    def map_batches(self, fn: Callable[..., Any], *, batch_size: int | None = None, batch_format: str | None = "default", zero_copy_batch: bool = True,
                    fn_args: Any = None, fn_kwargs: dict[str, Any] | None = None, udf_modifying_row_count: bool = True,
                    **ray_remote_args: Any) -> Dataset:
        """Apply a function to batches of rows.

        Parameters
        ----------
        fn : callable
            Takes a batch and gives one: a dict of arrays, a frame or a table; or a generator of them.
        batch_size : int, optional
            Rows in a batch, which never crosses blocks; None for a whole block.
        batch_format : {"numpy", "pandas", "pyarrow", "default"}
            What the function takes.
        zero_copy_batch : bool
            Batches may be read-only views on shared memory; False copies them, so that the function may write to them.
        udf_modifying_row_count : bool
            Taken for compatibility.
        fn_args, fn_kwargs, **ray_remote_args
            As for `map`.
        """
        form = _block.check_format(batch_format, "map_batches")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"map_batches: batch_size is {batch_size!r}: give a number of rows, or None")
        return self._mapped("map_batches", fn, fn_args, fn_kwargs, lambda f: _udf.over_batches(f, batch_size, form, not zero_copy_batch), ray_remote_args)

    def add_column(self, col: str, fn: Callable[[Any], Any], *, batch_format: str = "pandas", **ray_remote_args: Any) -> Dataset:
        """Add a column, or replace one, by what a function gives for a batch of all others."""
        form = _block.check_format(batch_format, "add_column")
        return self._mapped("add_column", fn, None, None, lambda f: _udf.column_added(col, f, form), ray_remote_args)

    def _mapped(self, method: str, fn: Any, args: Any, kwargs: Any, make: Callable[[Any], _plan.Transform], given: dict[str, Any]) -> Dataset:
        options = _udf.task_options(f"Dataset.{method}", given)
        whole = _udf.prepare(f"Dataset.{method}", fn, args, kwargs)
        name = f"{method}({getattr(fn, '__name__', type(fn).__name__)})"
        return Dataset(_plan.Map(name, self._step, make(whole), options))

    def select_columns(self, cols: str | list[str], **ray_remote_args: Any) -> Dataset:
        """Only these columns, in this order."""
        names = [cols] if isinstance(cols, str) else list(cols)
        return self._columns("select_columns", _udf.columns_only(names), ray_remote_args)

    def drop_columns(self, cols: str | list[str], **ray_remote_args: Any) -> Dataset:
        """All but these columns."""
        names = [cols] if isinstance(cols, str) else list(cols)
        return self._columns("drop_columns", _udf.columns_without(names), ray_remote_args)

    def rename_columns(self, names: dict[str, str] | list[str], **ray_remote_args: Any) -> Dataset:
        """Other names: a dict from old to new, or the list of all."""
        if not isinstance(names, dict):
            have = self.columns() or []
            if len(have) != len(names):
                raise ValueError(f"rename_columns: {len(names)} names for {len(have)} columns ({', '.join(have)}): give one for each, or a dict")
            names = dict(zip(have, names, strict=True))
        return self._columns("rename_columns", _udf.columns_renamed(dict(names)), ray_remote_args)

    def _columns(self, method: str, transform: _plan.Transform, given: dict[str, Any]) -> Dataset:
        return Dataset(_plan.Map(method, self._step, transform, _udf.task_options(f"Dataset.{method}", given)))

    def limit(self, limit: int) -> Dataset:
        """Only the first rows."""
        if limit < 0:
            raise ValueError(f"limit is {limit}: give at least 0")
        return Dataset(_plan.Limit(self._step, limit))

    def union(self, *other: Dataset) -> Dataset:
        """The rows of this dataset and then of the others."""
        return Dataset(_plan.Union((self._step, *(dataset._step for dataset in other))))

    # ---- order and blocks

    def random_shuffle(self, *, seed: int | None = None, num_blocks: int | None = None, **ray_remote_args: Any) -> Dataset:
        """The rows in random order.

        Parameters
        ----------
        seed : int, optional
            Makes it the same order each time, for the same blocks.
        """
        if num_blocks is not None:
            raise missing("Dataset.random_shuffle(num_blocks=...)", "call repartition afterwards")
        if ray_remote_args:
            raise missing(f"Dataset.random_shuffle({', '.join(ray_remote_args)}=...)")
        return Dataset(_plan.Exchange("random_shuffle", self._step, lambda pieces: _exchange.shuffle(pieces, seed)))

    def sort(self, key: str | list[str], descending: bool | list[bool] = False, boundaries: Any = None) -> Dataset:
        """The rows in order of columns; rows without a value come last.

        Parameters
        ----------
        key : str or list of str
            The columns.
        descending : bool or list of bool
            From large to small, for all or for each.
        """
        if boundaries is not None:
            raise missing("Dataset.sort(boundaries=...)")
        keys = [key] if isinstance(key, str) else list(key)
        down = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if not keys or len(down) != len(keys):
            raise ValueError(f"sort: key is {key!r} and descending {descending!r}: give at least one column, and one bool or one for each")
        order = [(name, "descending" if d else "ascending") for name, d in zip(keys, down, strict=True)]
        return Dataset(_plan.Exchange("sort", self._step, lambda pieces: _exchange.sort(pieces, order)))

    def repartition(self, num_blocks: int | None = None, target_num_rows_per_block: int | None = None, *, strict: bool = False,
                    shuffle: bool = False, keys: list[str] | None = None, sort: bool = False) -> Dataset:
        """The same rows in another number of blocks, of about one size.

        Parameters
        ----------
        num_blocks : int
            How many.
        shuffle : bool
            In random order too.
        """
        if target_num_rows_per_block is not None or keys is not None or sort or strict:
            raise missing("Dataset.repartition with other parameters than num_blocks and shuffle")
        if not isinstance(num_blocks, int) or num_blocks < 1:
            raise ValueError(f"repartition: num_blocks is {num_blocks!r}: give at least 1")
        source = self.random_shuffle() if shuffle else self
        return Dataset(_plan.Exchange(f"repartition({num_blocks})", source._step, lambda pieces: _exchange.repartition(pieces, num_blocks)))

    def materialize(self) -> MaterializedDataset:
        """Run the plan and keep the blocks."""
        return MaterializedDataset(_plan.Blocks(tuple(_plan.run(self._step))))

    # ---- parts

    def _pieces(self) -> tuple[list[_plan.Piece], int]:
        pieces = [piece for piece in _plan.run(self._step) if piece.rows]
        return pieces, sum(piece.rows for piece in pieces)

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[MaterializedDataset]:
        """Parts of about one size.

        Parameters
        ----------
        n : int
            How many.
        equal : bool
            With exactly the same number of rows each; what is left over is in none.
        locality_hints : list, optional
            Taken for compatibility.
        """
        return [MaterializedDataset(step) for step in self._even_parts("split", n, equal)]

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DataIterator]:
        """Iterators over parts, to be given to workers; the parameters are those of `split`.

        The plan runs once, here: every pass over a part gives the same rows in the same order.
        """
        return [DataIterator(step) for step in self._even_parts("streaming_split", n, equal)]

    def _even_parts(self, method: str, n: int, equal: bool) -> list[_plan.Blocks]:
        if not isinstance(n, int) or n < 1:
            raise ValueError(f"{method}: n is {n!r}: give at least 1")
        pieces, rows = self._pieces()
        bounds = [(rows // n) * (i + 1) if equal else rows * (i + 1) // n for i in range(n)]
        return [_plan.Blocks(tuple(part)) for part in _plan.cut_at(pieces, bounds)]

    def split_at_indices(self, indices: list[int]) -> list[MaterializedDataset]:
        """Parts that end before the rows with these numbers, and the rest."""
        if not indices:
            raise ValueError("split_at_indices: give at least one index")
        if any(index < 0 for index in indices) or sorted(indices) != list(indices):
            raise ValueError(f"split_at_indices: indices are {indices}: give rising numbers from 0")
        pieces, rows = self._pieces()
        bounds = [min(index, rows) for index in indices] + [rows]
        return [MaterializedDataset(_plan.Blocks(tuple(part))) for part in _plan.cut_at(pieces, bounds)]

    def split_proportionately(self, proportions: list[float]) -> list[MaterializedDataset]:
        """Parts with these shares of the rows, and the rest."""
        if not proportions or any(p <= 0 for p in proportions) or sum(proportions) >= 1:
            raise ValueError(f"split_proportionately: proportions are {proportions}: give shares above 0 that sum to less than 1")
        whole = self.materialize()
        rows = whole.count()
        return whole.split_at_indices([int(rows * share) for share in itertools.accumulate(proportions)])

    def train_test_split(self, test_size: int | float, *, shuffle: bool = False, seed: int | None = None,
                         stratify: str | None = None) -> tuple[MaterializedDataset, MaterializedDataset]:
        """Two parts: the last `test_size` rows, a number or a share, and those before.

        Parameters
        ----------
        shuffle : bool
            Bring the rows into random order before.
        seed : int, optional
            Of that order.
        """
        if stratify is not None:
            raise missing("Dataset.train_test_split(stratify=...)")
        whole = (self.random_shuffle(seed=seed) if shuffle else self).materialize()
        rows = whole.count()
        if isinstance(test_size, float):
            if not 0 < test_size < 1:
                raise ValueError(f"train_test_split: test_size is {test_size}: a share is between 0 and 1")
            first = rows - int(rows * test_size)
        else:
            if not 0 < test_size < rows:
                raise ValueError(f"train_test_split: test_size is {test_size}: give less than the {rows} rows, and at least 1")
            first = rows - test_size
        train, test = whole.split_at_indices([first])
        return train, test

    # ---- the rest

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a Dataset is not iterated itself: use iter_rows() or iter_batches()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(str(missing(f"Dataset.{name}")), name=name, obj=self)

    def __repr__(self) -> str:
        schema = self._schema
        columns = f", schema={{{', '.join(f'{n}: {t}' for n, t in zip(schema.names, schema.types, strict=True))}}}" if schema else ""
        return f"{type(self).__name__}({_plan.explain(self._step)}{columns})"


class MaterializedDataset(Dataset):
    """A dataset whose blocks are in the object store."""

    _step: _plan.Blocks

    def num_blocks(self) -> int:
        """How many blocks there are."""
        return len(self._step.pieces)

    def __repr__(self) -> str:
        schema = self.schema()
        columns = ", ".join(f"{n}: {t}" for n, t in zip(schema.names, schema.types, strict=True)) if schema else "unknown"
        return f"MaterializedDataset(num_blocks={self.num_blocks()}, num_rows={self.count()}, schema={{{columns}}})"


def of_blocks(blocks: list[Block]) -> MaterializedDataset:
    """A dataset of blocks that this process has."""
    pieces = [_plan.Piece(raygo.put(block), 0, _block.num_rows(block), _block.schema_of(block)) for block in blocks]
    return MaterializedDataset(_plan.Blocks(tuple(pieces)))
