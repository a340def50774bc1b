"""Templates of matrix products, which compute each product as a group of a convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from chameleon_core.plugin_api import Arrays, DesignSpace, Task

from chameleon_tvm import _emit as emit
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._instructions.emission import with_preludes
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm._spaces.template.algorithms import (
    Algorithm,
    Layer,
    MultiAlgorithmTemplate,
    algorithms_of,
    allowed_algorithms,
    allowed_weights,
)
from chameleon_tvm._spaces.template.arithmetic import (
    FLOAT32_ARITHMETIC,
    Arithmetic,
    arithmetic_of,
    half_weights_dot,
    product_arithmetic,
)
from chameleon_tvm._spaces.template.direct import DirectConvolution
from chameleon_tvm._spaces.template.direct_algorithm import (
    DirectAlgorithm,
    channel_blocks,
    padded_channels,
    tile_of,
)
from chameleon_tvm._spaces.template.direct_tiling import DirectTiling
from chameleon_tvm._spaces.template.epilogues import QuantizedProductEpilogue
from chameleon_tvm._spaces.template.geometry import Geometry, Tile
from chameleon_tvm._spaces.template.matmul_tiles import matmul_split
from chameleon_tvm._spaces.template.options import DIRECT, WEIGHT_DTYPES, TemplateOptions


def product_geometry(
    target: str, shape: tuple[int, int, int], layouts: tuple[str, str], groups: int = 1
) -> Geometry:
    """The sizes of the convolution that computes matrix products."""
    rows, inner, columns = shape
    return Geometry(
        batch=1,
        groups=groups,
        ic=inner,
        oc=columns,
        size=(1, rows),
        out=(1, rows),
        kernel=(1, 1),
        layout=layouts[0],
        out_layout=layouts[1],
        lanes=target_info(target).lanes("float32"),
    )


def tiling_of(
    task: Task, geometry: Geometry, inner: int, arithmetic: Arithmetic = FLOAT32_ARITHMETIC
) -> DirectTiling:
    """The design space of a matrix product, computed as a convolution."""
    return DirectTiling(
        geometry,
        target_info(task.target),
        in_place=arithmetic.reads_storage_dtype and geometry.ic == inner,
        channel_blocks=channel_blocks(geometry.ic, inner, arithmetic.dot.depth),
        arithmetic=arithmetic,
    )


class DenseTemplate(MultiAlgorithmTemplate):
    """Template of matrix products with constant weights, which are packed before timing."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        spec = DenseSpec.of(task)
        rows, features = spec.input
        arithmetic = arithmetic_of(spec, task.target)
        shape = (rows, padded_channels(features, arithmetic.dot.depth), spec.units)
        geometry = product_geometry(task.target, shape, ("NHWC", "NHWC"))
        arithmetics = {DIRECT: arithmetic}
        if arithmetic is FLOAT32_ARITHMETIC:
            for name in allowed_weights(options, spec):
                widening = half_weights_dot(WEIGHT_DTYPES[name], task.target)
                if widening is not None:
                    arithmetics[name] = Arithmetic(dot=widening)
        direct = DirectAlgorithm(
            geometry=geometry,
            spec=spec,
            info=target_info(task.target),
            channels=features,
            arithmetics=arithmetics,
        )
        whole = attrs.evolve(geometry, ic=features)
        layer = Layer(
            geometry=whole, direct=geometry, spec=spec, target=task.target, options=options
        )
        self.algorithms = algorithms_of(layer, direct)
        out = spec.result_shape
        self.shapes = {"data": spec.input, "residual": out, "out": out}

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *rest = constants
        return super().pack(values, [weights[:, :, None, None], *rest])


class BatchMatmulLoops(DirectConvolution):
    """Writes the function of a batch of matrix products, which packs the right sides itself."""

    def __init__(
        self, geometry: Geometry, tile: Tile, spec: BatchMatmulSpec, arithmetic: Arithmetic
    ) -> None:
        channels = spec.a[0] * spec.a[2]
        super().__init__(geometry, tile, spec, arithmetic=arithmetic, channels=channels)
        self.inner = spec.a[2]
        self.transposed = spec.transpose_b
        self.right = emit.buffer("right", spec.b, dtype=arithmetic.data.storage_dtype)

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: left, right, [quantization], out."""
        statements = [self._pack(), self._compute()]
        if self.tile.copy:
            statements.insert(0, self.input.make_copy())
        body = emit.allocate(self.weights, emit.sequence(statements))
        if self.tile.copy:
            body = emit.allocate(self.input.copy_buffer, body)
        body = with_preludes(body, [self.dot])
        constants = self.output.epilogue.parameters
        return emit.function([self.input.data, self.right, *constants, self.output.out], body)

    def _pack(self) -> Stmt:
        g, block, depth = self.geometry, self.output.block, self.dot.depth
        count = min(block, g.oc)
        whole, rest = divmod(self.inner, depth)

        def panel(index: Expr) -> Stmt:
            group, b = emit.split(index, (g.groups, self.blocks))
            first = emit.tile_start(b, block, self.output.channels)

            def element(k: Expr, o: Expr, part: int, present: int) -> Stmt:
                indices = [index, k, o if depth == 1 else o * depth + part]
                if part >= present:
                    return emit.store(self.weights, indices, emit.zero(dtype=self.dot.weights))
                at = k if depth == 1 else k * depth + part
                source = [group, first + o, at] if self.transposed else [group, at, first + o]
                return emit.store(self.weights, indices, self._right_element(source))

            def elements(k: Expr, o: Expr, present: int) -> Stmt:
                return emit.sequence([element(k, o, part, present) for part in range(depth)])

            def pad(k: Expr) -> Stmt:
                def clear(z: Expr) -> Stmt:
                    zero = emit.zero(dtype=self.dot.weights)
                    return emit.store(self.weights, [index, k, count * depth + z], zero)

                return emit.loop("z", (block - count) * depth, clear)

            def row(k: Expr, present: int = depth) -> Stmt:
                copy = emit.loop("o", count, lambda o: elements(k, o, present))
                return emit.sequence([copy, pad(k)] if count < block else [copy])

            rows = [emit.loop("k", whole, row)] if whole else []
            return emit.sequence([*rows, *([row(whole, rest)] if rest else [])])

        return emit.parallel("panel", g.groups * self.blocks, panel)

    def _right_element(self, source: list[Expr]) -> Expr:
        """An element of the right side in the dtype that is multiplied."""
        epilogue = self.output.epilogue
        zero = None
        if isinstance(epilogue, QuantizedProductEpilogue):
            zero = epilogue.right_zero_point
        return self.arithmetic.convert_right(emit.load(self.right, source), zero)


class BatchMatmulDirect(Algorithm):
    """The direct algorithm of products of two matrices that the network computes."""

    names = (DIRECT,)
    preferred = False

    def __init__(self, task: Task, spec: BatchMatmulSpec) -> None:
        self.task = task
        self.spec = spec
        self.arithmetic = product_arithmetic(spec, task.target)
        batch, rows, inner = spec.a
        # One group per product; a layout blocked by all of a group's channels is (batch, m, k).
        shape = (rows, padded_channels(inner, self.arithmetic.dot.depth), spec.columns)
        layouts = (f"NCHW{inner}c", f"NCHW{spec.columns}c")
        self.geometry = product_geometry(task.target, shape, layouts, groups=batch)

    def space(self) -> DesignSpace:
        return tiling_of(self.task, self.geometry, self.spec.a[2], self.arithmetic).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return BatchMatmulLoops(
            self.geometry, tile_of(values), self.spec, self.arithmetic
        ).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # there are no weights
        return constants


class BatchMatmulTemplate(MultiAlgorithmTemplate):
    """Template of products of two matrices that the network computes, so the kernel packs one."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        spec = BatchMatmulSpec.of(task)
        direct = BatchMatmulDirect(task, spec)
        split = matmul_split(spec, task.target, options, direct)
        self.algorithms = allowed_algorithms(options, [direct], [] if split is None else [split])
        self.shapes = {"data": spec.a, "out": spec.result_shape}
