"""CUDA templates of matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.operators.specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm.spaces.cuda.base import NestTemplate
from chameleon_tvm.spaces.cuda.nest import Axis, Nest, Operand
from chameleon_tvm.spaces.cuda.schedule import Blocks
from chameleon_tvm.spaces.cuda.tensor_core import ProductTemplate
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.types import HALVES


def _nest(sizes: tuple[int, int, int, int], operands: tuple[Operand, Operand], flop: float) -> Nest:
    """The loop nest of ``batch`` products (m, k) x (k, n); ``sizes`` are batch, m, n, k."""
    batch, rows, columns, inner = sizes
    return Nest(
        outputs=(Axis(name="m", extent=rows), Axis(name="n", extent=columns)),
        reductions=(Axis(name="k", extent=inner),),
        copies=batch,
        operands=operands,
        flop=flop,
    )


def dense_template(task: Task, options: TemplateOptions) -> Template:
    """Choose the template of a dense operator on a GPU; half precision uses tensor cores.

    Args:
        task: The task.
        options: Options of the space ``template``.
    """
    if DenseSpec.of(task).dtype in HALVES:
        return ProductTemplate(task, options)
    return DenseTemplate(task, options)


def batch_matmul_template(task: Task, options: TemplateOptions) -> Template:
    """Choose the template of batches of matrix products on a GPU: half precision uses tensor cores.

    Args:
        task: The task.
        options: Options of the space ``template``.
    """
    if BatchMatmulSpec.of(task).dtype in HALVES:
        return ProductTemplate(task, options)
    return BatchMatmulTemplate(task, options)


class DenseTemplate(NestTemplate):
    """Template of matrix products with constant weights, packed as (features, units)."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.spec = DenseSpec.of(task)
        super().__init__(task, options)

    def make_nest(self) -> Nest:
        rows, features = self.spec.input
        data = Operand(name="data", dimensions=({"m": 1}, {"k": 1}), vector_axis="k", turned=True)
        weights = Operand(name="weights", dimensions=({"k": 1}, {"n": 1}), vector_axis="n")
        return _nest((1, rows, self.spec.units, features), (data, weights), self.spec.flop)

    @property
    def blocks(self) -> Blocks:
        return Blocks(
            anchor="dense", loops=("m", "n", "k"), epilogue=None if self.spec.plain else "out"
        )

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # one order serves all
        weights, *bias = constants
        return [np.ascontiguousarray(weights.T), *bias]


class BatchMatmulTemplate(NestTemplate):
    """Template of matrix products of two variable sides."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.spec = BatchMatmulSpec.of(task)
        super().__init__(task, options)

    def make_nest(self) -> Nest:
        batch, rows, inner = self.spec.a

        def operand(name: str, rows: str, columns: str) -> Operand:
            return Operand(
                name=name,
                dimensions=({}, {rows: 1}, {columns: 1}),
                vector_axis=columns,
                turned=columns == "k",
            )

        left = operand("left", "m", "k")
        right = operand("right", *("nk" if self.spec.transpose_b else "kn"))
        sizes = (batch, rows, self.spec.columns, inner)
        return _nest(sizes, (left, right), self.spec.flop)

    @property
    def blocks(self) -> Blocks:
        return Blocks(anchor="batch_matmul", loops=("b", "m", "n", "k"))

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values
        return constants  # there are none
