"""What a dataset is made of: a tree of steps over blocks, and how it runs.

A step is `Blocks` (they lie in the object store), `Read` (tasks that make them), `Map` (a function over blocks), `Limit`, `Union` or `Exchange`
(needs all blocks of its input).  `run` gives pieces in order: it is a generator, so that blocks are made as they are asked for, with a bounded
number of tasks ahead.  Neighbouring `Map` and `Read` steps with the same resources are one task for each block.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import raygo
from raygo.data import _block
from raygo.data._block import Block

Transform = Callable[[Iterable[Block]], Iterable[Block]]


@dataclass(frozen=True)
class Piece:
    """Rows of a block in the object store; cutting one costs nothing."""

    ref: Any
    start: int
    stop: int
    schema: Any = None

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def cut(self, start: int, stop: int) -> Piece:
        """Rows of the piece, counted within it."""
        return Piece(self.ref, self.start + start, self.start + stop, self.schema)

    def load(self) -> Block:
        """The rows, as a view on shared memory."""
        return _view(raygo.get(self.ref), self.start, self.stop)


def _view(block: Block, start: int, stop: int) -> Block:
    return block if start == 0 and stop == _block.num_rows(block) else _block.cut(block, start, stop)


@dataclass(frozen=True)
class Blocks:
    """Blocks that are there."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Read:
    """Functions that each make one block."""

    name: str
    functions: tuple[Callable[[], Block], ...]
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Map:
    """A function over each block's rows; it may give any number of blocks, which become one."""

    name: str
    source: Step
    transform: Transform
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Limit:
    """The first rows."""

    source: Step
    rows: int


@dataclass(frozen=True)
class Union:
    """One after the other."""

    sources: tuple[Step, ...]


@dataclass(frozen=True)
class Exchange:
    """A function from all pieces to new ones."""

    name: str
    source: Step
    function: Callable[[list[Piece]], list[Piece]] = field(compare=False)


Step = Blocks | Read | Map | Limit | Union | Exchange


def run(step: Step) -> Iterator[Piece]:
    """The pieces of a plan, in order; empty ones may be among them."""
    if isinstance(step, Blocks):
        yield from step.pieces
    elif isinstance(step, (Read, Map)):
        yield from _run_tasks(step)
    elif isinstance(step, Limit):
        yield from _run_limit(step)
    elif isinstance(step, Union):
        for source in step.sources:
            yield from run(source)
    else:
        yield from step.function(list(run(step.source)))


def explain(step: Step) -> str:
    """The plan in a line."""
    if isinstance(step, Blocks):
        return f"Blocks({len(step.pieces)})"
    if isinstance(step, Read):
        return step.name
    if isinstance(step, Union):
        return f"Union({', '.join(explain(source) for source in step.sources)})"
    name = f"Limit({step.rows})" if isinstance(step, Limit) else step.name
    return f"{explain(step.source)} -> {name}"


def _run_limit(step: Limit) -> Iterator[Piece]:
    left = step.rows
    if left == 0:
        return
    for piece in run(step.source):
        if piece.rows >= left:
            yield piece.cut(0, left)
            return
        left -= piece.rows
        yield piece


# ---- a task for each block


def _run_tasks(step: Read | Map) -> Iterator[Piece]:
    transforms: list[Transform] = []
    names: list[str] = []
    source: Step = step
    while isinstance(source, Map) and source.options == step.options:
        transforms.insert(0, source.transform)
        names.insert(0, source.name)
        source = source.source
    inputs: Iterable[Any]
    if isinstance(source, Read) and (not transforms or source.options in ((), step.options)):
        inputs = source.functions
        names.insert(0, source.name)
    else:
        inputs = run(source)
    yield from submit("->".join(names), transforms, inputs, dict(step.options))


def submit(name: str, transforms: list[Transform], inputs: Iterable[Any], options: dict[str, Any]) -> Iterator[Piece]:
    """Run tasks over pieces or read functions, a bounded number ahead of the one that is asked for."""
    ahead = options.pop("concurrency", None) or 2 * max(1, int(raygo.cluster_resources().get("CPU", 1)))
    task = raygo.remote(num_returns=2, **options)(_make_block).options(name=f"data: {name}")
    shared = raygo.put(transforms)
    running: deque[tuple[Any, Any]] = deque()
    for item in inputs:
        if isinstance(item, Piece):
            running.append(task.remote(shared, None, item.ref, item.start, item.stop))
        else:
            running.append(task.remote(shared, item, None, 0, 0))
        if len(running) >= ahead:
            yield _finished(running.popleft())
    while running:
        yield _finished(running.popleft())


def _finished(refs: tuple[Any, Any]) -> Piece:
    ref, said = refs
    rows, schema = raygo.get(said)
    return Piece(ref, 0, rows, schema)


def _make_block(transforms: list[Transform], read: Callable[[], Block] | None, block: Block, start: int, stop: int) -> tuple[Block, tuple[int, Any]]:
    made: Iterable[Block] = [read() if read is not None else _view(block, start, stop)]
    for transform in transforms:
        made = transform(made)
    whole = _block.concat(made)
    return whole, (_block.num_rows(whole), _block.schema_of(whole))


# ---- cutting and gathering


def cut_at(pieces: Iterable[Piece], bounds: list[int]) -> list[list[Piece]]:
    """Pieces in groups that end before the rows `bounds` (rising); what is after the last is left out."""
    groups: list[list[Piece]] = [[] for _ in bounds]
    at = 0
    group = 0
    for piece in pieces:
        start = 0
        while group < len(bounds) and start < piece.rows:
            stop = min(piece.rows, bounds[group] - at)
            if stop > start:
                groups[group].append(piece.cut(start, stop))
                start = stop
            if at + start >= bounds[group]:
                group += 1
        at += piece.rows
    return groups


def gather(groups: list[list[Piece]]) -> list[Piece]:
    """A new block for each group, made by a task where it is not one piece already."""
    task = raygo.remote(num_returns=2)(_join).options(name="data: repartition")
    made: list[Any] = []
    for group in groups:
        made.append(group[0] if len(group) == 1 else task.remote([(p.start, p.stop) for p in group], *[p.ref for p in group]))
    return [piece if isinstance(piece, Piece) else _finished(piece) for piece in made]


def _join(spans: list[tuple[int, int]], *blocks: Block) -> tuple[Block, tuple[int, Any]]:
    whole = _block.concat(_view(block, start, stop) for block, (start, stop) in zip(blocks, spans, strict=True))
    return whole, (_block.num_rows(whole), _block.schema_of(whole))


def exchange(pieces: list[Piece], parts: int, split: Callable[[Block, int], list[Any]], merge: Callable[[Block, int], Block], name: str) -> list[Piece]:
    """All to all: `split(block, number)` says for each block which rows go to which part, `merge(block, number)` orders a part.

    Every block is read by one task and every part made by one, so that no process holds more than a block and its parts.
    """
    pieces = [piece for piece in pieces if piece.rows]
    if not pieces:
        return []
    spread = raygo.remote(num_returns=parts)(_spread).options(name=f"data: {name}")
    unite = raygo.remote(num_returns=2)(_unite).options(name=f"data: {name}")
    rows = []
    for number, piece in enumerate(pieces):
        refs = spread.remote(split, number, piece.ref, piece.start, piece.stop)
        rows.append([refs] if parts == 1 else refs)
    return [_finished(pair) for pair in [unite.remote(merge, number, *[row[number] for row in rows]) for number in range(parts)]]


def _spread(split: Callable[[Block, int], list[Any]], number: int, block: Block, start: int, stop: int) -> Any:
    block = _view(block, start, stop)
    parts = tuple(_block.take(block, indices) for indices in split(block, number))
    return parts[0] if len(parts) == 1 else parts


def _unite(merge: Callable[[Block, int], Block], number: int, *blocks: Block) -> tuple[Block, tuple[int, Any]]:
    whole = merge(_block.concat(blocks), number)
    return whole, (_block.num_rows(whole), _block.schema_of(whole))
