"""Element types that operators are computed in, and what each may write; cheap to import."""

from __future__ import annotations

from chameleon_core.dtypes import INT7, INT8

FLOAT32 = "float32"
BFLOAT16 = "bfloat16"
HALVES = ("float16", BFLOAT16)
"""Element types of two bytes; sums of their products are float32."""
FLOATS = (FLOAT32, *HALVES)
INTEGERS = (INT8, INT7)
"""Element types of operators on quantized tensors, after that of their weights: data are uint8,
sums int32."""
ALL = (*FLOATS, INT8)
WEIGHTED = (*ALL, INT7)
"""What operators with weights are computed in."""
ON_TENSOR_CORES = ("conv2d", "dense", "batch_matmul")
"""Operators that GPUs compute in half precision here."""
OUTPUTS = {
    FLOAT32: (FLOAT32,),
    **dict.fromkeys(INTEGERS, (FLOAT32, "uint8")),
    **{half: (half, FLOAT32) for half in HALVES},
}
"""What operators of a type may write; the first where nothing is said."""
LARGEST_PRODUCT = 255 * 128
"""Of uint8 data, less a zero point, and an int8 weight."""
LARGEST_DIFFERENCES = 255 * 255
"""Product of two uint8, each less a zero point."""
LARGEST_SUM = 2**31 - 1
