"""CUDA templates of matrix products, and the base class of those on tensor cores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Choice,
    ConfigError,
    Constraint,
    DesignSpace,
    Factorization,
    Knob,
    Task,
    Values,
)
from numpy.typing import NDArray

from chameleon_tvm._device.gpus import MAX_REGISTERS_PER_THREAD, TENSOR_CORES_SINCE, capability
from chameleon_tvm._instructions.fragments import SIDE
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.cuda.base import CudaTemplate, NestTemplate
from chameleon_tvm._spaces.cuda.fragments import BANK_OFFSET, BANKS, WARP, Product, schedule_product
from chameleon_tvm._spaces.cuda.nest import Axis, Nest, Operand, aligned_bytes
from chameleon_tvm._spaces.cuda.schedule import Blocks
from chameleon_tvm._spaces.cuda.tiling import ENOUGH_BLOCKS, UNROLLING, space_with_first_guesses
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._types import HALVES

HALF_BYTES, SUM_BYTES = 2, 4
SUM_REGISTERS = SIDE * SIDE // WARP
"""Registers per lane for a fragment of float32 sums. A fragment of operands takes as many."""
OTHER_REGISTERS = 40
FEATURES = ("log_blocks", "log_warps", "loads", "staged", "log_shared_bytes")
"""Features in order: blocks of the launch, warps of a block, fragments that a warp loads, elements
that a block stages, bytes of shared memory. Loads and staged elements are per multiplied
fragment."""
WIDTHS = (1, 2, 4, 8)
"""Elements that a thread may load at once: 16 bytes at most."""

Numbers = NDArray[np.int64]


@attrs.frozen(kw_only=True)
class Sizes:
    """Sizes of a product of matrices on tensor cores, in multiples of a fragment.

    Attributes:
        batch: Number of independent products.
        taps: Extents of all reduction axes except the last.
        inner: Extent of the last reduction axis.
    """

    batch: int = 1
    rows: int
    columns: int
    taps: tuple[int, ...] = ()
    inner: int


class TensorCoreTemplate(CudaTemplate):
    """Base class of products in half precision on tensor cores, with float32 sums.

    Raises:
        ConfigError: Sizes are not multiples of a fragment's, or the GPU has no such tensor cores.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        super().__init__(task, options)
        self.sizes, self.product = self.matrices()
        sizes = (self.sizes.rows, self.sizes.columns, self.sizes.inner)
        if any(size % SIDE for size in sizes):
            raise ConfigError(
                f"tensor cores multiply fragments of {SIDE}x{SIDE}x{SIDE}; task {task.name!r} "
                f"is {' x '.join(map(str, sizes))}",
                hint="Pad it to multiples of 16, or use `space: sketch`.",
            )
        if capability(self.info.arch) < TENSOR_CORES_SINCE:
            raise ConfigError(
                f"{self.info.arch} has no tensor cores", hint="Use float32, or `space: sketch`."
            )

    @abstractmethod
    def matrices(self) -> tuple[Sizes, Product]:
        """Describe the task as a product of matrices: the sizes, and the function's blocks.

        Raises:
            ConfigError: The template does not support the task.
        """

    def space(self) -> DesignSpace:
        sizes, tiles = self.sizes, self.product.knobs
        extents = (*sizes.taps, sizes.inner // SIDE)
        knobs: list[Knob] = [
            Factorization(name="tile_m", extent=sizes.rows // SIDE, parts=3),
            Factorization(name="tile_n", extent=sizes.columns // SIDE, parts=3),
            *(
                Factorization(name=name, extent=extent, parts=2)
                for name, extent in zip(tiles, extents, strict=True)
            ),
            *UNROLLING,
            *(Choice(name=f"vector_{name}", options=WIDTHS) for name in self.product.names),
        ]
        features = DesignSpace.FeatureBlock(names=FEATURES, compute=self._features)
        return space_with_first_guesses(
            knobs, self._constraints(), features, self._cost, ["tile_m", "tile_n", *tiles]
        )

    def _constraints(self) -> tuple[Constraint, ...]:
        info = self.info
        return (
            Constraint(
                reason=f"a block has more than {info.max_threads_per_block} threads",
                holds=lambda v: _warps(v) * WARP <= info.max_threads_per_block,
            ),
            Constraint(
                reason="a warp's fragments need more registers than there are",
                holds=lambda v: (
                    (_registers(v) <= MAX_REGISTERS_PER_THREAD)
                    & (_registers(v) * _warps(v) * WARP <= info.registers_per_block)
                ),
            ),
            Constraint(
                reason="a block's tiles do not fit "
                f"{info.max_shared_memory_per_block} bytes of shared memory",
                holds=lambda v: shared_bytes(self.product, v) <= info.max_shared_memory_per_block,
            ),
        )

    def _cost(self, values: Values) -> NDArray[np.float64]:
        """A rough relative cost: reads of shared memory over the share of the GPU that is busy."""
        blocks, warps, loads, staged, _ = self._features(values).T
        narrow = sum(1.0 / values[f"vector_{name}"] for name in self.product.names)
        work = loads + staged * (1.0 + narrow) + 0.5 / _depth(self.product, values)
        busy = np.minimum(1.0, 2.0**blocks / ENOUGH_BLOCKS) * np.minimum(1.0, 2.0**warps / 4.0)
        return np.asarray(work / busy)

    def _features(self, values: Values) -> NDArray[np.float64]:
        """Features for cost models, shape (n, len(FEATURES))."""
        m, n = values["tile_m"].astype(np.float64), values["tile_n"].astype(np.float64)
        shared = shared_bytes(self.product, values)
        columns = (
            np.log2(self.sizes.batch * m[:, 0] * n[:, 0]),
            np.log2(_warps(values)),
            1.0 / m[:, 2] + 1.0 / n[:, 2],
            1.0 / (m[:, 1] * m[:, 2]) + 1.0 / (n[:, 1] * n[:, 2]),
            np.log2(shared),
        )
        return np.stack(columns, axis=1)

    def schedule_function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return schedule_product(self.unscheduled, self.product, values)


def product_of(task: Task) -> tuple[Sizes, Product]:
    """The sizes of a dense operator or of batched products, and the function's description."""
    if task.operator == DenseSpec.kind:
        dense = DenseSpec.of(task)
        rows, inner = dense.input
        product = Product(anchor="dense", names=("data", "weights"), dtype=dense.dtype)
        return Sizes(rows=rows, columns=dense.units, inner=inner), product
    spec = BatchMatmulSpec.of(task)
    batch, rows, inner = spec.a
    product = Product(
        anchor="batch_matmul",
        transposed=spec.transpose_b,
        names=("left", "right"),
        dtype=spec.dtype,
    )
    return Sizes(batch=batch, rows=rows, columns=spec.columns, inner=inner), product


class ProductTemplate(TensorCoreTemplate):
    """Template of dense operators and batched products on tensor cores."""

    weight_axes = (1, 0)

    def matrices(self) -> tuple[Sizes, Product]:
        return product_of(self.task)


def shared_bytes(product: Product, values: Values) -> Numbers:
    """Bytes of shared memory of a block: tiles of both sides and all sums, shape (n,)."""
    rows = values["tile_m"][:, 1] * values["tile_m"][:, 2] * SIDE
    columns = values["tile_n"][:, 1] * values["tile_n"][:, 2] * SIDE
    depth = values[product.knobs[-1]][:, 1] * SIDE
    taps = _depth(product, values) * SIDE // depth
    right = (columns, depth) if product.transposed else (depth, columns)
    staged = [taps * length * _row(row) * HALF_BYTES for length, row in ((rows, depth), right)]
    sizes = [*staged, rows * columns * SUM_BYTES]
    return aligned_bytes(sizes)


def _depth(product: Product, values: Values) -> Numbers:
    """Number of fragments that a step multiplies one after another for each fragment of sums."""
    return np.asarray(np.prod([values[knob][:, 1] for knob in product.knobs], axis=0))


def _row(elements: Numbers) -> Numbers:
    """Elements from the start of a row of a staged tile to the start of the next row."""
    return elements + (BANK_OFFSET - elements) % BANKS


def _warps(values: Values) -> Numbers:
    return np.asarray(values["tile_m"][:, 1] * values["tile_n"][:, 1])


def _registers(values: Values) -> Numbers:
    rows, columns = values["tile_m"][:, 2], values["tile_n"][:, 2]
    fragments = rows * columns + rows + columns
    return np.asarray(fragments * SUM_REGISTERS + OTHER_REGISTERS)


def product_template(task: Task, options: TemplateOptions) -> Template:
    """Choose the template of matrix products on a GPU; half precision uses tensor cores."""
    _, product = product_of(task)
    return (ProductTemplate if product.dtype in HALVES else MatmulTemplate)(task, options)


class MatmulTemplate(NestTemplate):
    """Template of matrix products. Constant weights are packed as (features, units)."""

    weight_axes = (1, 0)

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.sizes, self.product = product_of(task)
        self.batched = task.operator == BatchMatmulSpec.kind
        super().__init__(task, options)

    def make_nest(self) -> Nest:
        sizes, product = self.sizes, self.product

        def operand(name: str, rows: str, columns: str) -> Operand:
            outer: tuple[dict[str, int], ...] = ({},) * self.batched
            dimensions = (*outer, {rows: 1}, {columns: 1})
            transposed = columns == "k"
            return Operand(
                name=name, dimensions=dimensions, vector_axis=columns, transposed=transposed
            )

        left, right = product.names
        return Nest(
            outputs=(Axis(name="m", extent=sizes.rows), Axis(name="n", extent=sizes.columns)),
            reductions=(Axis(name="k", extent=sizes.inner),),
            copies=sizes.batch,
            operands=(
                operand(left, "m", "k"),
                operand(right, *("nk" if product.transposed else "kn")),
            ),
            flop=self.task.flop,
        )

    @property
    def blocks(self) -> Blocks:
        loops = ("b", "m", "n", "k") if self.batched else ("m", "n", "k")
        plain = self.batched or DenseSpec.of(self.task).plain
        return Blocks(anchor=self.product.anchor, loops=loops, epilogue=None if plain else "out")
