"""Templates of matrix products: convolutions with 1x1 filters whose pixels are rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.operators.specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.algorithms import (
    KNOB,
    allowed_weights,
    joined,
    rounding_error,
    with_stored_weights,
)
from chameleon_tvm.spaces.template.arithmetic import (
    FLOAT32,
    Arithmetic,
    arithmetic_of,
    stored_weights,
)
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.conv2d import (
    channel_blocks,
    filled,
    pack_constants,
    tile_of,
)
from chameleon_tvm.spaces.template.direct import DirectConvolution
from chameleon_tvm.spaces.template.emit import Expr, Stmt
from chameleon_tvm.spaces.template.geometry import Geometry, Tile
from chameleon_tvm.spaces.template.options import DIRECT, WEIGHTS, TemplateOptions
from chameleon_tvm.spaces.template.tile_products import TileProducts
from chameleon_tvm.spaces.template.tile_tiling import TILED
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling
from chameleon_tvm.targets import target_info

MOST = 4.0
"""Largest error of many outputs over the expected one that is accepted."""


def _tiling(
    task: Task, geometry: Geometry, inner: int, arithmetic: Arithmetic = FLOAT32
) -> ConvolutionTiling:
    return ConvolutionTiling(
        geometry,
        target_info(task.target),
        in_place=arithmetic.as_they_are and geometry.ic == inner,
        channel_blocks=channel_blocks(geometry.ic, inner, arithmetic.dot.depth),
        arithmetic=arithmetic,
    )


class DenseTemplate(Template):
    """A matrix product with constant weights, packed outside the clock.

    Where options allow it weights may be stored in less than float32 and widened on the way: with
    few rows they take longer to arrive than to be multiplied with.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.task = task
        self.spec = spec = DenseSpec.of(task)
        rows, features = spec.input
        self.arithmetic = arithmetic_of(spec, task.target)
        dot = self.arithmetic.dot
        self.geometry = Geometry(
            batch=1,
            groups=1,
            ic=filled(features, dot.depth),
            oc=spec.units,
            size=(1, rows),
            out=(1, rows),
            kernel=(1, 1),
            layout="NHWC",
            out_layout="NHWC",
            lanes=target_info(task.target).lanes("float32"),
        )
        self.tiles = TileProducts.of(attrs.evolve(self.geometry, ic=features), spec, task.target)
        self._algorithms = {DIRECT: self.arithmetic}
        if self.arithmetic is FLOAT32:
            for name in allowed_weights(options):
                widening = stored_weights(WEIGHTS[name], task.target)
                if widening is not None:
                    self._algorithms[name] = Arithmetic(dot=widening)

    def space(self) -> DesignSpace:
        spaces = {
            name: _tiling(self.task, self.geometry, self.spec.input[1], one).space()
            for name, one in self._algorithms.items()
        }
        if len(spaces) > 1:
            return with_stored_weights(spaces)
        vectors = spaces[DIRECT]
        return vectors if self.tiles is None else joined(vectors, self.tiles.space())

    @property
    def tolerance(self) -> float:
        """A few times what is expected: the largest of many errors is compared."""
        names = [name for name in self._algorithms if name != DIRECT]
        return MOST * max((rounding_error(WEIGHTS[name]) for name in names), default=0.0)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        out = self.spec.result_shape
        shapes = {"data": self.spec.input, "residual": out, "out": out}
        if self.tiles is not None and values[KNOB] == TILED:
            return self.tiles.function(values, shapes)
        made = DirectConvolution(
            self.geometry,
            tile_of(values),
            self.spec,
            arithmetic=self._algorithms[values.get(KNOB, DIRECT)],
            channels=self.spec.input[1],
        )
        return emit.with_shapes(made.function(), shapes)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *rest = constants
        filters = weights[:, :, None, None]
        packed = [filters, *rest]
        if self.tiles is not None and values[KNOB] == TILED:
            return self.tiles.pack(values, packed)
        arithmetic = self._algorithms[values.get(KNOB, DIRECT)]
        return pack_constants(packed, self.geometry, tile_of(values), arithmetic)


class PackingBatchMatmul(DirectConvolution):
    """Writes a batch of products whose right side is packed by the function itself.

    Args:
        geometry: one group per product of the batch.
        tile: the point of the design space.
        transposed: whether the right side is stored as (batch, n, k).
    """

    def __init__(self, geometry: Geometry, tile: Tile, *, transposed: bool) -> None:
        super().__init__(geometry, tile)
        self.transposed = transposed
        sides = (geometry.oc, geometry.ic) if transposed else (geometry.ic, geometry.oc)
        self.right = emit.buffer("right", (geometry.groups, *sides))

    def function(self) -> tirx.PrimFunc:
        """The whole function: (left, right, out)."""
        statements = [self._pack(), self._compute()]
        if self.tile.copy:
            statements.insert(0, self.input.copy())
        body = emit.local(self.weights, emit.sequence(statements))
        if self.tile.copy:
            body = emit.local(self.input.staged, body)
        return emit.function([self.input.data, self.right, self.output.out], body)

    def _pack(self) -> Stmt:
        g, block = self.geometry, self.output.block
        count = min(block, g.oc)

        def panel(index: Expr) -> Stmt:
            group, b = emit.split(index, (g.groups, self.blocks))
            first = emit.within(b, block, self.output.channels)

            def element(k: Expr, o: Expr) -> Stmt:
                source = [group, first + o, k] if self.transposed else [group, k, first + o]
                return emit.store(self.weights, [index, k, o], emit.load(self.right, source))

            def blank(k: Expr) -> Stmt:
                return emit.loop(
                    "z",
                    block - count,
                    lambda z: emit.store(self.weights, [index, k, count + z], emit.zero()),
                )

            def row(k: Expr) -> Stmt:
                copy = emit.loop("o", count, lambda o: element(k, o))
                return emit.sequence([copy, blank(k)] if count < block else [copy])

            return emit.loop("k", g.ic, row)

        return emit.parallel("panel", g.groups * self.blocks, panel)


class BatchMatmulTemplate(Template):
    """Matrix products neither side of which is constant: packing is inside the clock."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options  # there is one algorithm
        self.task = task
        self.spec = BatchMatmulSpec.of(task)
        batch, rows, inner = self.spec.a
        columns = self.spec.columns
        # One group per product; a layout blocked by all of a group's channels is (batch, m, k).
        self.geometry = Geometry(
            batch=1,
            groups=batch,
            ic=inner,
            oc=columns,
            size=(1, rows),
            out=(1, rows),
            kernel=(1, 1),
            layout=f"NCHW{inner}c",
            out_layout=f"NCHW{columns}c",
            lanes=target_info(task.target).lanes(self.spec.dtype),
        )

    def space(self) -> DesignSpace:
        return _tiling(self.task, self.geometry, self.geometry.ic).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        made = PackingBatchMatmul(self.geometry, tile_of(values), transposed=self.spec.transpose_b)
        out = (self.spec.a[0], self.spec.a[1], self.spec.columns)
        return emit.with_shapes(made.function(), {"data": self.spec.a, "out": out})

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values
        return constants  # there are none
