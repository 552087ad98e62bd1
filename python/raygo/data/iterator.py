"""Reading a dataset: rows and batches."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from raygo.data import _block, _plan
from raygo.data._block import Block
from raygo.data._udf import missing

if TYPE_CHECKING:
    from raygo.data.dataset import MaterializedDataset, Schema

__all__ = ["DataIterator"]


class Batches(Iterable[Any]):
    """The batches of a pass over a dataset; each ``iter`` begins a new one."""

    def __init__(self, iterator: DataIterator, arguments: tuple[Any, ...]) -> None:
        self._iterator = iterator
        self._arguments = arguments

    def __iter__(self) -> Iterator[Any]:
        return self._iterator._batches(*self._arguments)


class DataIterator:
    """Gives the rows of a dataset, or of a worker's part of one, as often as it is asked.

    What `Dataset.iterator`, `Dataset.streaming_split` and `raygo.train.get_dataset_shard` give.

    Examples
    --------
    >>> for batch in raygo.data.range(6).iterator().iter_batches(batch_size=4):     # doctest: +SKIP
    ...     print(batch["id"])
    [0 1 2 3]
    [4 5]
    """

    def __init__(self, step: _plan.Step) -> None:
        self._step = step

    def _blocks(self) -> Iterator[Block]:
        for piece in _plan.run(self._step):
            if piece.rows:
                yield piece.load()

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """The rows, as dicts."""
        for block in self._blocks():
            yield from _block.iter_rows(block)

    def iter_batches(self, *, prefetch_batches: int = 1, batch_size: int | None = 256, batch_format: str | None = "default", drop_last: bool = False,
                     local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None,
                     _collate_fn: Callable[[Any], Any] | None = None) -> Iterable[Any]:
        """The rows in batches.

        Parameters
        ----------
        prefetch_batches : int
            Taken for compatibility: blocks are read in place from shared memory, and those that are still to be made are worked on ahead.
        batch_size : int, optional
            Rows in a batch; the last one may have fewer.  None: a block at a time.
        batch_format : {"numpy", "pandas", "pyarrow", "default"}
            A dict of arrays, a frame or a table; "default" is "numpy".  Arrays may be read-only views on shared memory.
        drop_last : bool
            Leave out a last batch with fewer rows.
        local_shuffle_buffer_size : int, optional
            Take rows in random order from so many at a time.
        local_shuffle_seed : int, optional
            Makes that order the same each time.
        """
        form = _block.check_format(batch_format, "iter_batches")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"iter_batches: batch_size is {batch_size}: give at least 1, or None")
        if local_shuffle_buffer_size is not None and batch_size is None:
            raise ValueError("iter_batches: local_shuffle_buffer_size needs a batch_size")
        return Batches(self, (batch_size, form, drop_last, local_shuffle_buffer_size, local_shuffle_seed, _collate_fn))

    def _batches(self, size: int | None, form: str, drop_last: bool, buffer: int | None, seed: int | None,
                 collate: Callable[[Any], Any] | None) -> Iterator[Any]:
        blocks: Iterable[Block] = self._blocks()
        if buffer is not None:
            blocks = _shuffled(blocks, buffer, seed)
        for block in _sized(blocks, size, drop_last) if size is not None else blocks:
            batch = _block.to_batch(block, form)
            yield collate(batch) if collate is not None else batch

    def iter_torch_batches(self, *, prefetch_batches: int = 1, batch_size: int | None = 256, dtypes: Any = None, device: Any = "auto",
                           collate_fn: Callable[[dict[str, Any]], Any] | None = None, drop_last: bool = False,
                           local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None,
                           pin_memory: bool = False) -> Iterable[Any]:
        """The rows in batches of tensors: a dict of them, or what `collate_fn` makes of a dict of arrays.

        Parameters
        ----------
        dtypes : torch.dtype or dict, optional
            The type of all columns, or of columns by name.
        device : torch.device or str
            Where the tensors shall be; "auto" is the training worker's device, and the CPU elsewhere.
        collate_fn : callable, optional
            Takes a dict of arrays.
        pin_memory : bool
            Put them into memory from which a GPU copies faster.
        prefetch_batches, batch_size, drop_last, local_shuffle_buffer_size, local_shuffle_seed
            As for `iter_batches`.
        """
        if collate_fn is not None and dtypes is not None:
            raise ValueError("iter_torch_batches: dtypes has no effect beside collate_fn: set the types there")
        from raygo.data._torch import to_device, to_tensors

        def collate(arrays: dict[str, Any]) -> Any:
            made = collate_fn(arrays) if collate_fn is not None else to_tensors(arrays, dtypes)
            return to_device(made, device, pin_memory)

        return self.iter_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, batch_format="numpy", drop_last=drop_last,
                                 local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed, _collate_fn=collate)

    def iter_tf_batches(self, *, prefetch_batches: int = 1, batch_size: int | None = 256, dtypes: Any = None, drop_last: bool = False,
                        local_shuffle_buffer_size: int | None = None, local_shuffle_seed: int | None = None) -> Iterable[Any]:
        """The rows in batches of TensorFlow's tensors, a dict of them; the parameters are those of `iter_batches`."""
        import tensorflow as tf

        def collate(arrays: dict[str, Any]) -> Any:
            return {name: tf.convert_to_tensor(values, dtype=dtypes.get(name) if isinstance(dtypes, dict) else dtypes) for name, values in arrays.items()}

        return self.iter_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, batch_format="numpy", drop_last=drop_last,
                                 local_shuffle_buffer_size=local_shuffle_buffer_size, local_shuffle_seed=local_shuffle_seed, _collate_fn=collate)

    def materialize(self) -> MaterializedDataset:
        """The rows as a dataset whose blocks are in the object store."""
        from raygo.data.dataset import MaterializedDataset

        return MaterializedDataset(_plan.Blocks(tuple(_plan.run(self._step))))

    def schema(self) -> Schema | None:
        """The columns and their types."""
        from raygo.data.dataset import Dataset

        return Dataset(self._step).schema()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iter_batches())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(str(missing(f"DataIterator.{name}")), name=name, obj=self)

    def __repr__(self) -> str:
        return f"DataIterator({_plan.explain(self._step)})"


def _sized(blocks: Iterable[Block], size: int, drop_last: bool) -> Iterator[Block]:
    """The same rows in blocks of `size`."""
    kept: list[Block] = []
    have = 0
    for block in blocks:
        rows = _block.num_rows(block)
        start = 0
        while have + rows - start >= size:
            stop = start + size - have
            yield _block.concat([*kept, _block.cut(block, start, stop)])
            kept, have, start = [], 0, stop
        if start < rows:
            kept.append(_block.cut(block, start, rows))
            have += rows - start
    if have and not drop_last:
        yield _block.concat(kept)


def _shuffled(blocks: Iterable[Block], size: int, seed: int | None) -> Iterator[Block]:
    """The rows in random order, as far as a buffer of at least `size` rows allows: half of it goes out, the rest waits for more."""
    import numpy as np

    if size < 1:
        raise ValueError(f"local_shuffle_buffer_size is {size}: give at least 1")
    random = np.random.default_rng(seed)
    buffer: list[Block] = []
    have = 0
    for block in blocks:
        buffer.append(block)
        have += _block.num_rows(block)
        if have >= 2 * size:
            mixed = _block.take(whole := _block.concat(buffer), random.permutation(_block.num_rows(whole)))
            yield _block.cut(mixed, 0, have - size)
            buffer, have = [_block.cut(mixed, have - size, have)], size
    if buffer:
        whole = _block.concat(buffer)
        yield _block.take(whole, random.permutation(_block.num_rows(whole)))
