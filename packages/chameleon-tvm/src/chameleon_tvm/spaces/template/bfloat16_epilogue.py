"""The epilogue of a template on bfloat16 tensors: in float32, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm.instructions.base import BFLOAT16_BITS
from chameleon_tvm.instructions.bfloat16 import rounding, widening
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.spec import FusedSpec
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Expr
from chameleon_tvm.spaces.template.vector_epilogue import VectorEpilogue


class Bfloat16VectorEpilogue(VectorEpilogue):
    """What is done to sums of float32 before they are stored as bfloat16.

    Args:
        spec: the operator.
        channels: how many numbers a bias has, padded; it is packed as float32.
        shape: of the output, and of the residual.
    """

    out_type = BFLOAT16_BITS

    def __init__(self, spec: FusedSpec, channels: int, shape: Sequence[int]) -> None:
        super().__init__(spec, channels, shape)
        if spec.residual:
            self.residual = emit.buffer("residual", shape, dtype=BFLOAT16_BITS)

    def last(self, sums: Expr, place: Sequence[Expr], lanes: int) -> Expr:
        if self.residual is not None:
            sums = sums + widening(emit.load(self.residual, place, lanes), lanes)
        return rounding(activate(sums, self.activation), lanes)
