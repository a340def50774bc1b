"""CUDA templates of matrix products."""

from __future__ import annotations

from chameleon_core.task import Task

from chameleon_tvm.operators.specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm.spaces.cuda.base import NestTemplate
from chameleon_tvm.spaces.cuda.nest import Axis, Nest, Operand
from chameleon_tvm.spaces.cuda.schedule import Blocks
from chameleon_tvm.spaces.cuda.tensor_core import ProductTemplate, product_of
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.types import HALVES


def product_template(task: Task, options: TemplateOptions) -> Template:
    """Choose the template of matrix products on a GPU; half precision uses tensor cores.

    Args:
        task: The task of a dense operator or of batches of matrix products.
        options: Options of the space ``template``.
    """
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
            turned = columns == "k"
            return Operand(name=name, dimensions=dimensions, vector_axis=columns, turned=turned)

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
