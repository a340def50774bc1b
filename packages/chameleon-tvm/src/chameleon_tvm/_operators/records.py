"""The records with which this package registers its operators, without importing TVM."""

from __future__ import annotations

from chameleon_core.plugin_api import OperatorRecord

from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._operators.convolution_specs import CONVOLUTIONS
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec

_HERE = "chameleon_tvm._operators"

OPERATORS = (
    *(
        OperatorRecord(
            summary=f"A convolution with {spec.rank} spatial "
            + ("axis" if spec.rank == 1 else "axes")
            + (", each channel with filters of its own" if kind.startswith("depthwise") else ""),
            arguments=spec,
            factory=f"{_HERE}.convolution:Convolution",
        )
        for kind, spec in CONVOLUTIONS.items()
    ),
    OperatorRecord(
        summary="A matrix product with constant weights",
        arguments=DenseSpec,
        factory=f"{_HERE}.matmul:Dense",
    ),
    OperatorRecord(
        summary="Matrix products neither side of which is constant",
        arguments=BatchMatmulSpec,
        factory=f"{_HERE}.matmul:BatchMatmul",
    ),
    OperatorRecord(
        summary="Scaled dot-product attention, with a mask or without",
        arguments=AttentionSpec,
        factory=f"{_HERE}.attention:Attention",
    ),
    OperatorRecord(
        summary="A TensorIR function of your own, from a file or a module",
        arguments=PrimFuncSpec,
        factory=f"{_HERE}.primfunc:PrimFuncOperator",
        carries_code=True,
    ),
    OperatorRecord(
        name="loops",
        summary="A function of loops in a network that is none of the other operators",
        factory=f"{_HERE}.primfunc:PrimFuncOperator",
        carries_code=True,
    ),
)
"""The operators that a pipeline may list (``model: {operators: [{KIND: {...}}]}``), and those that
only networks contain."""
