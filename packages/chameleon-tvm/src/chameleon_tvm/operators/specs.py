"""What a pipeline file says about an operator: every kind that there is.

Cheap to import: a pipeline file is checked without TVM or NumPy.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from chameleon_core.task import Task

from chameleon_tvm.operators.attention_specs import AttentionSpec
from chameleon_tvm.operators.convolution_specs import (
    CONVOLUTIONS,
    Conv1dSpec,
    Conv2dSpec,
    Conv3dSpec,
    ConvolutionSpec,
    DepthwiseConv1dSpec,
    DepthwiseConv2dSpec,
    DepthwiseConv3dSpec,
    DepthwiseSpec,
    GroupedSpec,
    convolution_of,
)
from chameleon_tvm.operators.layouts import LAYOUT_HINT, channel_block, physical_shape
from chameleon_tvm.operators.matmul_specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm.operators.spec import ACTIVATIONS, FusedSpec, OperatorSpec, helped

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "LAYOUT_HINT",
    "OPERATOR_SPECS",
    "AttentionSpec",
    "BatchMatmulSpec",
    "Conv1dSpec",
    "Conv2dSpec",
    "Conv3dSpec",
    "ConvolutionSpec",
    "DenseSpec",
    "DepthwiseConv1dSpec",
    "DepthwiseConv2dSpec",
    "DepthwiseConv3dSpec",
    "DepthwiseSpec",
    "FusedSpec",
    "GroupedSpec",
    "OperatorSpec",
    "PrimFuncSpec",
    "channel_block",
    "convolution_of",
    "physical_shape",
]


@attrs.frozen(kw_only=True)
class PrimFuncSpec(OperatorSpec):
    """A TensorIR function of the user's own."""

    kind: ClassVar[str] = "primfunc"

    source: str = attrs.field(
        metadata={
            **helped("'path.py:function' or 'package.module:function' that gives a PrimFunc"),
            "source": True,
        }
    )
    constants: tuple[str, ...] = attrs.field(
        default=(), converter=tuple, metadata=helped("names of inputs that never change")
    )
    reference: str = attrs.field(
        default="",
        metadata={
            **helped("a function of NumPy arrays, named as in source; TVM's own where missing"),
            "source": True,
        },
    )
    tolerance: float = attrs.field(
        default=1e-3,
        validator=attrs.validators.gt(0),
        metadata=helped("largest |difference| over the largest |expected|"),
    )

    def __attrs_post_init__(self) -> None:
        if not self.source:
            raise self.fail("source is empty", "Write 'path.py:function'.")
        for written in (self.source, self.reference):
            place, _, function = written.rpartition(":")
            if written and not (place and function.isidentifier()):
                raise self.fail(
                    f"{written!r} does not name a function",
                    "Write 'path.py:function' or 'package.module:function'.",
                )

    @property
    def flop(self) -> float:
        # Counted on the function itself, which only TVM can read.
        return 0.0

    def task(self, name: str, target: str) -> Task:
        from chameleon_tvm.operators.primfunc import primfunc_task  # noqa: PLC0415 - needs TVM

        return primfunc_task(self, self.name or name, target)


OPERATOR_SPECS: dict[str, type[OperatorSpec]] = {
    **CONVOLUTIONS,
    **{spec.kind: spec for spec in (DenseSpec, BatchMatmulSpec, AttentionSpec, PrimFuncSpec)},
}
"""What ``model: {operators: [{KIND: {...}}]}`` may name."""
