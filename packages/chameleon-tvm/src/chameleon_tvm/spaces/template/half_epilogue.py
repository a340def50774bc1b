"""The epilogue of a template on tensors of two bytes: in float32, rounded once or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm.instructions.halves import half_of
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.spec import FusedSpec, TypedSpec
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Expr
from chameleon_tvm.spaces.template.vector_epilogue import VectorEpilogue


class HalfVectorEpilogue(VectorEpilogue):
    """What is done to sums of float32 before they are stored as bfloat16, float16 or float32.

    Args:
        spec: the operator, with or without an epilogue of its own.
        channels: how many numbers a bias has, padded; it is packed as float32.
        shape: of the output, and of the residual.
    """

    def __init__(self, spec: TypedSpec, channels: int, shape: Sequence[int]) -> None:
        super().__init__(spec if isinstance(spec, FusedSpec) else None, channels, shape)
        self._written = half_of(spec.output_dtype)
        if self._written is not None:
            self.out_type = self._written.held
        if self.residual is not None:
            self.residual = emit.buffer("residual", shape, dtype=self.out_type)

    def last(self, sums: Expr, place: Sequence[Expr], lanes: int) -> Expr:
        half = self._written
        if self.residual is not None:
            added = emit.load(self.residual, place, lanes)
            sums = sums + (added if half is None else half.widening(added, lanes))
        made = activate(sums, self.activation)
        return made if half is None else half.rounding(made, lanes)
