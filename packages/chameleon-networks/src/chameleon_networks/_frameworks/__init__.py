"""Frameworks that run a network in some precision: torch, ONNX Runtime and OpenVINO."""

from chameleon_core.api import NetworkResult as _NetworkResult
from chameleon_tvm.api import BFLOAT16, FLOAT16, INT8

AS_IT_COMES = _NetworkResult.Rival.AS_IT_COMES
PRECISIONS = (INT8, BFLOAT16, FLOAT16, AS_IT_COMES)
"""Precisions other than float32 that frameworks can be asked for, for comparisons.

ONNX Runtime and torch.compile are not compared in ``AS_IT_COMES``: they then compute in float32.
"""
