"""Operands and epilogue of an operator, by its element type."""

from __future__ import annotations

import json

from chameleon_tvm.operators.bfloat16 import Bfloat16Epilogue
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.quantized import QuantizedEpilogue
from chameleon_tvm.operators.spec import BFLOAT16, FusedSpec


def epilogue_of(spec: FusedSpec, target: str) -> Epilogue:
    """What an operator's inputs and outputs are made of on a target.

    Args:
        spec: the operator.
        target: the canonical target; GPUs have a bfloat16 of their own.
    """
    if spec.quantized:
        return QuantizedEpilogue(spec)
    if spec.dtype == BFLOAT16 and json.loads(target).get("kind") == "llvm":
        return Bfloat16Epilogue(spec)
    return Epilogue(spec)
