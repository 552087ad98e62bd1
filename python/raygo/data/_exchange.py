"""Steps in which every block may give rows to every other."""
from __future__ import annotations

import functools
from typing import Any

from raygo.data import _block, _plan
from raygo.data._block import Block
from raygo.data._plan import Piece

# Rows of each block that say where a sort is cut.
_SAMPLE = 200


def repartition(pieces: list[Piece], blocks: int) -> list[Piece]:
    """The same rows in `blocks` blocks."""
    rows = sum(piece.rows for piece in pieces)
    groups = _plan.cut_at(pieces, [rows * (i + 1) // blocks for i in range(blocks)])
    if pieces:
        # A block without rows still has columns.
        groups = [group or [pieces[0].cut(0, 0)] for group in groups]
    return _plan.gather(groups)


def shuffle(pieces: list[Piece], seed: int | None) -> list[Piece]:
    """The rows in random order, in as many blocks."""
    import numpy as np

    pieces = [piece for piece in pieces if piece.rows]
    start = np.random.SeedSequence(seed).entropy
    return _plan.exchange(pieces, len(pieces), functools.partial(_deal, start, len(pieces)), functools.partial(_mix, start), "random_shuffle")


def _deal(seed: Any, parts: int, block: Block, number: int) -> list[Any]:
    import numpy as np

    chosen = np.random.default_rng([seed, number, 0]).integers(parts, size=_block.num_rows(block))
    return [np.flatnonzero(chosen == part) for part in range(parts)]


def _mix(seed: Any, block: Block, number: int) -> Block:
    import numpy as np

    return _block.take(block, np.random.default_rng([seed, number, 1]).permutation(_block.num_rows(block)))


def sort(pieces: list[Piece], order: list[tuple[str, str]]) -> list[Piece]:
    """The rows in order, in as many blocks or fewer: ranges of the first column, each sorted by one task."""
    pieces = [piece for piece in pieces if piece.rows]
    column, direction = order[0]
    bounds = _bounds(pieces, column) if len(pieces) > 1 else []
    return _plan.exchange(pieces, len(bounds) + 1, functools.partial(_range, column, direction, bounds), functools.partial(_sorted, order), "sort")


def _bounds(pieces: list[Piece], column: str) -> list[Any]:
    """Values of the column between which about the same number of rows lies."""
    transforms: list[_plan.Transform] = [functools.partial(_sample, column)]
    found = _block.concat(piece.load() for piece in _plan.submit("sort: sample", transforms, pieces, {}))
    values = sorted(value for value in found["value"].to_pylist() if value is not None and value == value)
    cuts = [values[len(values) * (i + 1) // len(pieces)] for i in range(len(pieces) - 1)] if values else []
    return sorted(set(cuts))


def _sample(column: str, blocks: Any) -> Any:
    import pyarrow as pa

    for block in blocks:
        values = _sortable(column, block)[column]
        yield pa.table({"value": values.take(pa.array(range(0, len(values), max(1, len(values) // _SAMPLE))))})


def _sortable(column: str, block: Block) -> Block:
    if not _block.is_table(block):
        raise ValueError("sort: a block holds values that Arrow has no type for; leave their column out with drop_columns first")
    if column not in block.column_names:
        raise ValueError(f"sort: there is no column {column!r}: the columns are {', '.join(map(repr, block.column_names))}")
    return block


def _range(column: str, direction: str, bounds: list[Any], block: Block, number: int) -> list[Any]:
    """Part k has the rows from bound k-1 to before bound k; what has no value is in the last part, whatever the direction."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    values = _sortable(column, block)[column]
    part = np.zeros(len(values), dtype=np.int64)
    for bound in bounds:
        part += pc.fill_null(pc.greater_equal(values, pa.scalar(bound, type=values.type)), False).to_numpy().astype(np.int64)
    if direction == "descending":
        part = len(bounds) - part
    empty = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type)).to_numpy()
    part[empty] = len(bounds)
    return [np.flatnonzero(part == k) for k in range(len(bounds) + 1)]


def _sorted(order: list[tuple[str, str]], block: Block, number: int) -> Block:
    if not _block.num_rows(block):
        return block
    import pyarrow.compute as pc

    return _block.take(block, pc.sort_indices(block, sort_keys=order).to_numpy())
