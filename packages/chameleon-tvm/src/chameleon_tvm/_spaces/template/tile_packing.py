"""Packs float32 matrices that the network computes into tiles of bfloat16 parts.

Word i of a row of a tile of data holds the numbers i and i + 16 of a step of 32. Row i of a tile of
weights holds the rows i and i + 16 of its step. So two vectors become words without a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._spaces.template.split_numbers import TOO_LARGE, magnitude_of, pair, parts_of

LANES = 16
"""Number of words of a row of a tile, and of rows of a tile."""
STEP = 2 * LANES
"""Number of products that a tile product adds to each sum."""
TILE = LANES * STEP
"""Number of elements of a tile of data or weights."""

Read = Callable[[Expr, Expr, int], Expr]
"""Reads as many neighbours of a row of a matrix: takes the row, the first column, the number."""
Words = Sequence[Expr]
"""A vector of words for each part."""
Write = Callable[[Expr, Words], Stmt]
"""Writes a row of a tile: takes the row and its words."""


def supports(product: TileProduct) -> bool:
    """Whether the tiles of an instruction have the form that this module packs."""
    return (product.rows, product.columns, product.depth, product.pack) == (LANES, LANES, STEP, 2)


def write_words(target: Buffer, starts: Sequence[Expr], row: Expr, words: Words) -> Stmt:
    """Statement that writes words of each part to a row of the tile that begins at its start."""
    stores = [
        emit.store(target, [start + row * STEP], tirx.reinterpret(f"uint16x{STEP}", word), STEP)
        for start, word in zip(starts, words, strict=True)
    ]
    return emit.sequence(stores)


class Magnitudes:
    """Notices numbers that have no finite parts, while iterations of a parallel loop pack them.

    Attributes:
        largest: A register of an iteration.
        kept: The registers of all iterations.
        iterations: Number of iterations of a call, at most that of ``kept``.
    """

    def __init__(self, name: str, most: int, iterations: Expr) -> None:
        self.kept = emit.buffer(name, (most * LANES,), dtype="int32")
        self.iterations = iterations

    def loop(self, name: str, body: Callable[[Packer, Expr], Stmt], parts: int) -> Stmt:
        """The parallel loop, whose iterations have packers that note magnitudes."""

        def iteration(at: Expr) -> Stmt:
            (largest,) = emit.registers(1, LANES, name="largest", dtype="int32")
            clear = emit.assign(largest, emit.zero(LANES, "int32"))
            keep = emit.store(self.kept, [at * LANES], emit.read(largest), LANES)
            packing = body(Packer(parts, largest), at)
            return emit.allocate(largest, emit.sequence([clear, packing, keep]))

        return emit.parallel(name, self.iterations, iteration)


def repeat_unless_finite(magnitudes: Sequence[Magnitudes], repeat: Stmt) -> Stmt:
    """Run a statement if any number was an infinity or NaN or rounded to infinity."""
    (largest,) = emit.registers(1, 1, name="largest", dtype="int32")
    statements = [emit.assign(largest, tirx.const(0, "int32"))]

    def compare(kept: Buffer, at: Expr) -> Stmt:
        return emit.assign(largest, tirx.max(emit.read(largest), emit.load(kept, [at])))

    for each in magnitudes:
        count = each.iterations * LANES
        statements.append(emit.loop("at", count, partial(compare, each.kept)))
    repeated = emit.when(emit.read(largest) >= TOO_LARGE, repeat)
    return emit.allocate(largest, emit.sequence([*statements, repeated]))


class Packer:
    """Packs tiles of parts and notes the largest magnitude.

    Args:
        parts: Number of parts of a number.
        largest: The register that holds the largest magnitude so far.
    """

    def __init__(self, parts: int, largest: Buffer) -> None:
        self.parts = parts
        self.largest = largest

    def data(self, read: Read, depth: int, write: Write) -> Stmt:
        """Pack a tile of data: 16 rows of ``depth`` numbers, which zeros fill up."""

        def row(at: Expr) -> Stmt:
            vectors, before, buffers = _halves(read, at, depth)
            statements = [
                *before,
                *map(self._note, vectors),
                write(at, words_of(vectors, self.parts)),
            ]
            return _with(buffers, statements)

        return emit.loop("row", LANES, row)

    def weights(self, read: Read, depth: int, columns: int, write: Write) -> Stmt:
        """Pack a tile of weights from ``depth`` rows of ``columns`` numbers."""
        both, first = max(0, depth - LANES), min(depth, LANES)
        none = [emit.zero(LANES, "uint32")] * self.parts

        def row(at: Expr, count: int) -> Stmt:
            loaded = [read_vector(read, at + half * LANES, 0, columns) for half in range(count)]
            vectors = [vector for vector, _, _ in loaded]
            statements = [statement for _, before, _ in loaded for statement in before]
            statements += [*map(self._note, vectors), write(at, words_of(vectors, self.parts))]
            return _with([each for _, _, buffers in loaded for each in buffers], statements)

        return emit.sequence(
            [
                *([emit.loop("row", both, lambda at: row(at, 2))] if both else []),
                *(
                    [emit.loop("row", first - both, lambda at: row(at, 1), start=both)]
                    if first > both
                    else []
                ),
                *(
                    [emit.loop("row", LANES - first, lambda at: write(at, none), start=first)]
                    if first < LANES
                    else []
                ),
            ]
        )

    def transposed_weights(self, read: Read, depth: int, columns: int, write: Write) -> Stmt:
        """Pack a tile of weights from ``columns`` rows of ``depth`` numbers."""
        lines = [
            emit.registers(LANES, LANES, name="line", dtype="uint32") for _ in range(self.parts)
        ]
        statements = []
        for column in range(LANES):
            words: Words = [emit.zero(LANES, "uint32")] * self.parts
            before: list[Stmt] = []
            buffers: list[Buffer] = []
            if column < columns:
                vectors, before, buffers = _halves(read, column, depth)
                before = [*before, *map(self._note, vectors)]
                words = words_of(vectors, self.parts)
            assigned = [
                emit.assign(part[column], word) for part, word in zip(lines, words, strict=True)
            ]
            statements.append(_with(buffers, [*before, *assigned]))
        rows = []
        for part in lines:
            binds, turned = emit.transposed([emit.read(line) for line in part])
            statements += binds
            rows.append(turned)
        statements += [write(at, words) for at, words in enumerate(zip(*rows, strict=True))]
        return emit.allocate([line for part in lines for line in part], emit.sequence(statements))

    def _note(self, vector: Expr) -> Stmt:
        return emit.assign(self.largest, tirx.max(emit.read(self.largest), magnitude_of(vector)))


def words_of(vectors: Sequence[Expr], parts: int) -> Words:
    """The words of each part of one or two vectors; the second is zero if there is only one."""
    split = [parts_of(vector, parts) for vector in vectors]
    if len(split) == 1:
        split.append([emit.zero(LANES, "uint32")] * parts)
    return [pair(*both) for both in zip(*split, strict=True)]


def _halves(read: Read, row: Expr, depth: int) -> tuple[list[Expr], list[Stmt], list[Buffer]]:
    """The one or two vectors of a row; statements before them; buffers that these need."""
    vectors, statements, buffers = [], [], []
    for start in range(0, depth, LANES):
        vector, before, more = read_vector(read, row, start, min(LANES, depth - start))
        vectors.append(vector)
        statements += before
        buffers += more
    return vectors, statements, buffers


def read_vector(
    read: Read, row: Expr, start: int, valid: int
) -> tuple[Expr, list[Stmt], list[Buffer]]:
    """A vector of a row with zeros after ``valid`` numbers, with its statements and buffers."""
    if valid >= LANES:
        vector = tirx.Var("vector", f"float32x{LANES}")
        return vector, [tirx.Bind(vector, read(row, start, LANES))], []
    short = emit.buffer("short", (LANES,))
    copy = emit.loop("at", valid, lambda at: emit.store(short, [at], read(row, start + at, 1)))
    clear = emit.store(short, [0], emit.zero(LANES), LANES)
    return emit.load(short, [0], LANES), [clear, copy], [short]


def _with(buffers: Sequence[Buffer], statements: Sequence[Stmt]) -> Stmt:
    body = emit.sequence(statements)
    return emit.allocate(buffers, body) if buffers else body
