"""Operands and epilogue of an operator, by its element type."""

from __future__ import annotations

import json

from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.halves import HalfEpilogue
from chameleon_tvm.operators.quantized import QuantizedEpilogue
from chameleon_tvm.operators.spec import FusedSpec
from chameleon_tvm.types import HALVES


def epilogue_of(spec: FusedSpec, target: str) -> Epilogue:
    """What an operator's inputs and outputs are made of on a target.

    Args:
        spec: the operator.
        target: the canonical target; GPUs have such types of their own.
    """
    if spec.quantized:
        return QuantizedEpilogue(spec)
    if spec.dtype in HALVES and json.loads(target).get("kind") == "llvm":
        return HalfEpilogue(spec)
    return Epilogue(spec)
