"""Element types that operators are computed in, what each may write, and what targets have which.

Cheap to import: a pipeline file is checked without TVM or NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chameleon_core.dtypes import INT7, INT8

from chameleon_tvm.device.gpus import BFLOAT16_SINCE, capability

if TYPE_CHECKING:
    from chameleon_tvm.operators.spec import OperatorSpec

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


def computed_in(spec: OperatorSpec, dtype: str, allowed: Sequence[str] = ALL) -> None:
    """Refuse element types that nothing here computes an operator in.

    Args:
        spec: the operator.
        dtype: as it was written.
        allowed: what there is for such operators.
    """
    if dtype not in allowed:
        *others, last = allowed
        raise spec.fail(f"dtype {dtype!r} is not supported", f"Give {', '.join(others)} or {last}.")


def settled_output(spec: OperatorSpec, dtype: str, output_dtype: str) -> str:
    """What an operator writes.

    Args:
        spec: the operator.
        dtype: what it is computed in.
        output_dtype: as it was written; empty for what is usual.

    Raises:
        ConfigError: operators of the type do not write that.
    """
    known = OUTPUTS[dtype]
    if not output_dtype or output_dtype in known:
        return output_dtype or known[0]
    owners = [one for one, outputs in OUTPUTS.items() if output_dtype in outputs]
    if not owners:
        raise spec.fail(
            f"output_dtype {output_dtype!r} is not supported",
            f"Give {' or '.join(known)}, or leave output_dtype out.",
        )
    raise spec.fail(
        f"output_dtype {output_dtype!r} is for {owners[0]} operators, and dtype is {dtype!r}",
        f"Give dtype: {owners[0]}, or leave output_dtype out.",
    )


def check_products(spec: OperatorSpec, count: int, largest: int) -> None:
    """Refuse integer sums that could pass 32 bits.

    Args:
        spec: the operator.
        count: of the products that an output adds up.
        largest: the largest magnitude of one.
    """
    if count * largest > LARGEST_SUM:
        raise spec.fail(
            f"sums of {count} products of 8-bit integers could pass 32 bits",
            f"Give dtype: float32, or sum up at most {LARGEST_SUM // largest} products.",
        )


def on_target(spec: OperatorSpec, dtype: str, target: str, output_dtype: str = "") -> None:
    """Refuse element types on targets where nothing here computes with them.

    Args:
        spec: the operator.
        dtype: what it is to be computed in.
        target: the canonical target.
        output_dtype: what it is to write; empty for what is usual.
    """
    if dtype == FLOAT32:
        return
    value: dict[str, Any] = json.loads(target)
    kind = value.get("kind")
    if kind == "llvm":
        return
    if dtype in INTEGERS:
        raise spec.fail(
            f"dtype {dtype!r} is for llvm targets, and the target is {kind!r}",
            "Give float32 or float16 there, or a CPU as the target.",
        )
    if kind != "cuda":
        raise spec.fail(
            f"dtype {dtype!r} is for llvm and cuda targets, and the target is {kind!r}",
            "Give float32 there.",
        )
    if spec.kind not in ON_TENSOR_CORES:
        raise spec.fail(
            f"dtype {dtype!r} is for {', '.join(ON_TENSOR_CORES)} on a GPU", "Give float32 there."
        )
    if output_dtype not in ("", dtype):
        raise spec.fail(
            f"operators of dtype {dtype!r} write nothing else on a GPU",
            "Leave output_dtype out.",
        )
    arch = str(value.get("arch", ""))
    if dtype == BFLOAT16 and arch and capability(arch) < BFLOAT16_SINCE:
        raise spec.fail(
            f"bfloat16 needs a GPU of sm_80 or later, and the target is {arch}",
            "Give float16 there.",
        )
