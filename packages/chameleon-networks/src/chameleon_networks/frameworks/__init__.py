"""Other programs that run a network, and their precisions: torch, ONNX Runtime, OpenVINO."""

from chameleon_tvm.types import BFLOAT16, FLOAT16, INT8

AS_IT_COMES = "as-it-comes"
"""What is asked of something that takes the type it likes."""

PRECISIONS = (INT8, BFLOAT16, FLOAT16, AS_IT_COMES)
"""What other frameworks can be asked for beside float32, to compare with.

There is no row for ONNX Runtime and torch.compile as they come: they compute in float32 then.
"""
