"""The template of products neither side of which is constant: convolutions of a group each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.device.targets import target_info
from chameleon_tvm.instructions.emission import importing
from chameleon_tvm.operators.specs import BatchMatmulSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.arithmetic import Arithmetic, product_arithmetic
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.conv2d import filled, tile_of
from chameleon_tvm.spaces.template.direct import DirectConvolution
from chameleon_tvm.spaces.template.emit import Expr, Stmt
from chameleon_tvm.spaces.template.geometry import Geometry, Tile
from chameleon_tvm.spaces.template.matmul import tiling_of
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.quantized_epilogue import QuantizedProductEpilogue


class PackingBatchMatmul(DirectConvolution):
    """Writes a batch of products whose right side is packed by the function itself.

    Args:
        geometry: one group per product of the batch, its channels filled up.
        tile: the point of the design space.
        spec: the operator.
        arithmetic: what it multiplies with.
    """

    def __init__(
        self, geometry: Geometry, tile: Tile, spec: BatchMatmulSpec, arithmetic: Arithmetic
    ) -> None:
        channels = spec.a[0] * spec.a[2]
        super().__init__(geometry, tile, spec, arithmetic=arithmetic, channels=channels)
        self.inner = spec.a[2]
        self.transposed = spec.transpose_b
        self.right = emit.buffer("right", spec.b, dtype=arithmetic.data)

    def function(self) -> tirx.PrimFunc:
        """The whole function: (left, right, [quantization], out)."""
        statements = [self._pack(), self._compute()]
        if self.tile.copy:
            statements.insert(0, self.input.copy())
        body = emit.local(self.weights, emit.sequence(statements))
        if self.tile.copy:
            body = emit.local(self.input.staged, body)
        body = importing(body, [self.dot])
        more = self.output.epilogue.parameters
        return emit.function([self.input.data, self.right, *more, self.output.out], body)

    def _pack(self) -> Stmt:
        g, block, depth = self.geometry, self.output.block, self.dot.depth
        count = min(block, g.oc)
        whole, rest = divmod(self.inner, depth)

        def panel(index: Expr) -> Stmt:
            group, b = emit.split(index, (g.groups, self.blocks))
            first = emit.within(b, block, self.output.channels)

            def element(k: Expr, o: Expr, part: int, there: int) -> Stmt:
                place = [index, k, o if depth == 1 else o * depth + part]
                if part >= there:
                    return emit.store(self.weights, place, emit.zero(dtype=self.dot.weights))
                at = k if depth == 1 else k * depth + part
                source = [group, first + o, at] if self.transposed else [group, at, first + o]
                return emit.store(self.weights, place, self._converted(source))

            def elements(k: Expr, o: Expr, there: int) -> Stmt:
                return emit.sequence([element(k, o, part, there) for part in range(depth)])

            def blank(k: Expr) -> Stmt:
                def clear(z: Expr) -> Stmt:
                    zero = emit.zero(dtype=self.dot.weights)
                    return emit.store(self.weights, [index, k, count * depth + z], zero)

                return emit.loop("z", (block - count) * depth, clear)

            def row(k: Expr, there: int = depth) -> Stmt:
                copy = emit.loop("o", count, lambda o: elements(k, o, there))
                return emit.sequence([copy, blank(k)] if count < block else [copy])

            rows = [emit.loop("k", whole, row)] if whole else []
            return emit.sequence([*rows, *([row(whole, rest)] if rest else [])])

        return emit.parallel("panel", g.groups * self.blocks, panel)

    def _converted(self, source: list[Expr]) -> Expr:
        """An element of the right side as it is multiplied."""
        epilogue = self.output.epilogue
        zero = None
        if isinstance(epilogue, QuantizedProductEpilogue):
            zero = epilogue.right_zero_point
        return self.arithmetic.varying(emit.load(self.right, source), zero)


class BatchMatmulTemplate(Template):
    """Matrix products neither side of which is constant: packing is inside the clock."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options  # there is one algorithm
        self.task = task
        self.spec = BatchMatmulSpec.of(task)
        self.arithmetic = product_arithmetic(self.spec, task.target)
        batch, rows, inner = self.spec.a
        columns = self.spec.columns
        # One group per product; a layout blocked by all of a group's channels is (batch, m, k).
        self.geometry = Geometry(
            batch=1,
            groups=batch,
            ic=filled(inner, self.arithmetic.dot.depth),
            oc=columns,
            size=(1, rows),
            out=(1, rows),
            kernel=(1, 1),
            layout=f"NCHW{inner}c",
            out_layout=f"NCHW{columns}c",
            lanes=target_info(task.target).lanes("float32"),
        )

    def space(self) -> DesignSpace:
        return tiling_of(self.task, self.geometry, self.spec.a[2], self.arithmetic).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        made = PackingBatchMatmul(self.geometry, tile_of(values), self.spec, self.arithmetic)
        shapes = {"data": self.spec.a, "out": self.spec.result_shape}
        return emit.with_shapes(made.function(), shapes)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values
        return constants  # numbers of an int8 operator, which are the same for all columns
