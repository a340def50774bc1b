"""Winograd's transforms F(m x m, 3 x 3), as matrices and as code without loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import attrs
import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._operators.spec import FusedSpec

TAPS = 3
"""Height and width of the filters."""

POINTS = {2: (0, 1, -1), 4: (0, 1, -1, 2, -2)}
"""The points at which polynomials are evaluated, in addition to infinity, by the height of an
output tile."""

SAMPLED_TILES = 64
SAMPLED_FILTERS = 16
SAFETY = 2.0
"""Factor of the sampled error. A layer has more outputs than the sample, and its largest error
counts."""

Matrix = NDArray[np.float64]


@attrs.frozen(kw_only=True, eq=False)
class Transforms:
    """The matrices of F(m x m, 3 x 3): ``A^T [(G g G^T) * (B^T d B)] A`` (Lavin and Gray, 2016).

    Attributes:
        out: m, the rows of a tile of outputs.
        data: B^T, shape (m + 2, m + 2).
        weights: G, shape (m + 2, 3).
        output: A^T, shape (m, m + 2).
    """

    out: int
    data: Matrix
    weights: Matrix
    output: Matrix

    @property
    def size(self) -> int:
        """Rows of a tile of inputs, m + 2."""
        return len(self.data)

    @property
    def points(self) -> int:
        """The number of products that a tile needs for each pair of channels: (m + 2)^2."""
        return self.size**2


@cache
def transforms(out: int) -> Transforms:
    """Make Winograd's matrices for tiles of ``out`` x ``out`` outputs (Cook and Toom)."""
    points = np.array(POINTS[out], np.float64)
    size = out + TAPS - 1
    data, weights = np.zeros((size, size)), np.zeros((size, TAPS))
    output = np.zeros((out, size))
    for j, point in enumerate(points):
        others = np.delete(points, j)
        data[j, : size - 1] = polynomial.polyfromroots(others)
        weights[j] = point ** np.arange(TAPS) / np.prod(point - others)
        output[:, j] = point ** np.arange(out)
    data[-1] = polynomial.polyfromroots(points)
    weights[-1, -1] = output[-1, -1] = 1.0
    return Transforms(out=out, data=data, weights=weights, output=output)


def winograd_error(out: int, channels: int, spec: FusedSpec) -> float:
    """The expected error of a convolution: largest |difference| over the largest |output|.

    The transforms of larger tiles have larger coefficients, whose products cancel if neighbouring
    inputs are equal. So their errors grow with the data's differences from the mean of a window.
    """
    products = spec.cancellation * expected_error(min(POINTS), channels)
    return max(products, spec.detail_cancellation * expected_error(out, channels))


@cache
def expected_error(out: int, channels: int) -> float:
    """The expected error in float32 for random numbers in [-1, 1), in the real kernel's order."""
    matrices = transforms(out)
    rng = np.random.default_rng(0)
    tiles = rng.uniform(-1, 1, (SAMPLED_TILES, channels, matrices.size, matrices.size))
    filters = rng.uniform(-1, 1, (SAMPLED_FILTERS, channels, TAPS, TAPS))

    def computed(dtype: type[np.floating]) -> NDArray[np.floating]:
        b, a = matrices.data.astype(dtype), matrices.output.astype(dtype)
        u = (matrices.weights @ filters @ matrices.weights.T).astype(dtype)
        v = b @ tiles.astype(np.float32).astype(dtype) @ b.T
        m = np.einsum("tcij,ocij->toij", v, u)
        return np.asarray(a @ m @ a.T)

    exact, rounded = computed(np.float64), computed(np.float32)
    return SAFETY * float(np.abs(rounded - exact).max() / np.abs(exact).max())


class VectorCode:
    """Collects straight-line statements on vector registers."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.statements: list[Stmt] = []
        self.buffers: list[emit.Buffer] = []

    def assign(self, value: Expr) -> Expr:
        """Compute a vector once, and return an expression that reads it."""
        (register,) = emit.registers(1, self.lanes, name=f"t{len(self.buffers)}_")
        self.buffers.append(register)
        self.statements.append(emit.assign(register, value))
        return emit.read(register)

    def load_tile(self, size: int, read: Callable[[int, int], Expr]) -> list[list[Expr]]:
        """Compute every vector of a square tile once, row by row."""
        return [[self.assign(read(i, j)) for j in range(size)] for i in range(size)]

    def multiply(self, matrix: Matrix, vectors: Sequence[Expr]) -> list[Expr]:
        """Emit the product of a matrix with as many vectors as it has columns.

        Winograd's points come in pairs p and -p, so pairs of columns or rows are equal up to signs.
        Sums and differences of such a pair are computed once.
        """
        coefficients, vectors = self._pair_columns(matrix, list(vectors))
        pairs = _pairs(coefficients)
        results: dict[int, Expr] = {}
        for i, k in pairs:
            even = self._combine((coefficients[i] + coefficients[k]) / 2, vectors)
            odd = self._combine((coefficients[i] - coefficients[k]) / 2, vectors)
            results[i], results[k] = self.assign(even + odd), self.assign(even - odd)
        for i, row in enumerate(coefficients):
            if i not in results:
                results[i] = self._combine(row, vectors)
        return [results[i] for i in range(len(matrix))]

    def transform(self, matrix: Matrix, tile: Sequence[Sequence[Expr]]) -> list[list[Expr]]:
        """``M X M^T`` for a tile X of vectors."""
        columns = [self.multiply(matrix, column) for column in zip(*tile, strict=True)]
        return [self.multiply(matrix, row) for row in zip(*columns, strict=True)]

    def finish(self, last: Sequence[Stmt]) -> Stmt:
        """All statements so far, followed by some last statements."""
        return emit.allocate(tuple(self.buffers), emit.sequence([*self.statements, *last]))

    def _pair_columns(self, matrix: Matrix, vectors: list[Expr]) -> tuple[Matrix, list[Expr]]:
        coefficients = matrix.copy()
        for j, k in _pairs(matrix.T):
            equal = matrix[:, j] == matrix[:, k]
            coefficients[:, j] = np.where(equal, matrix[:, j], 0.0)
            coefficients[:, k] = np.where(equal, 0.0, matrix[:, j])
            left, right = vectors[j], vectors[k]
            vectors[j], vectors[k] = self.assign(left + right), self.assign(left - right)
        return coefficients, vectors

    def _combine(self, row: NDArray[np.float64], vectors: Sequence[Expr]) -> Expr:
        """A linear combination; terms without a multiplication come first."""
        order = sorted(
            np.flatnonzero(row).tolist(), key=lambda j: (row[j] != 1.0, abs(row[j]) != 1.0)
        )
        total: Expr | None = None
        for j in order:
            coefficient, vector = float(row[j]), vectors[j]
            if total is None:
                total = vector if coefficient == 1.0 else vector * self._splat(coefficient)
            elif coefficient == 1.0:
                total = total + vector
            elif coefficient == -1.0:
                total = total - vector
            else:
                total = total + vector * self._splat(coefficient)
        return self.assign(total) if len(order) > 1 or row[order[0]] != 1.0 else total

    def _splat(self, value: float) -> Expr:
        return emit.constant(value, self.lanes)


def _pairs(rows: Matrix) -> list[tuple[int, int]]:
    """Pairs of adjacent rows that differ only in signs and have more than one nonzero number."""
    pairs: list[tuple[int, int]] = []
    for i in range(len(rows) - 1):
        j = i + 1
        alike = np.array_equal(np.abs(rows[i]), np.abs(rows[j]))
        if alike and np.count_nonzero(rows[i]) > 1 and not (pairs and pairs[-1][1] == i):
            pairs.append((i, j))
    return pairs
