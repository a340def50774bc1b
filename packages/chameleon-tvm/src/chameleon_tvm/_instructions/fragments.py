"""Products of matrix fragments that a GPU's warp holds: NVIDIA's tensor cores, with TVM's WMMA."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import attrs
import numpy as np

from chameleon_tvm._instructions.base import Array, Instruction
from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._late_tvm import tvm

SIDE = 16
"""Rows, columns and depth of a fragment."""


@attrs.frozen(kw_only=True)
class Intrinsics:
    """Names of TVM's tensor intrinsics for one kind of product of fragments on tensor cores.

    Attributes:
        load: Two intrinsics that load the left and the right side from shared memory.
    """

    load: tuple[str, str]
    fill: str
    multiply: str
    store: str


class Fragments(Instruction):
    """``sums[m, n] += sum over k of data[m, k] * weights[k, n]`` on a GPU's tensor cores.

    The threads of a warp hold the fragments together, with float32 sums. Schedules insert the
    intrinsics with ``tensorize``.

    Attributes:
        abbreviation: The dtype in the names of TVM's intrinsics, such as ``f16``.
    """

    mnemonics: ClassVar[tuple[str, ...]] = ("mma_sync",)
    data: ClassVar[str]
    weights: ClassVar[str]
    abbreviation: ClassVar[str]

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """Compute what the instruction computes, for tests; all arrays have shape (16, 16)."""
        result = sums.copy()
        for k in range(SIDE):
            result += np.multiply.outer(data[:, k], weights[k]).astype(np.float32)
        return result

    def intrinsics(self, *, transposed: bool) -> Intrinsics:
        """Register the intrinsics with TVM; ``transposed`` weights are stored as (n, k)."""
        self.register()
        suffix = "_trans" if transposed else ""
        return Intrinsics(
            load=(
                f"wmma_load_16x16x16_{self.abbreviation}_a_shared",
                f"wmma_load_16x16x16_{self.abbreviation}_b{suffix}_shared",
            ),
            fill="wmma_fill_16x16x16_f32",
            multiply=f"wmma_sync_16x16x16_{self.abbreviation}{self.abbreviation}f32{suffix}",
            store="wmma_store_16x16x16_f32_shared_dyn",
        )

    def register(self) -> None:
        """Register the instruction's intrinsics with TVM."""
        load_tensor_intrinsics()


class Float16Fragments(Fragments):
    """Tensor-core products of float16, whose intrinsics TVM defines."""

    name: ClassVar[str] = "wmma.f16"
    data: ClassVar[str] = "float16"
    weights: ClassVar[str] = "float16"
    abbreviation: ClassVar[str] = "f16"


class Bfloat16Fragments(Fragments):
    """Tensor-core products of bfloat16; functions of TVM generate their intrinsics."""

    name: ClassVar[str] = "wmma.bf16"
    data: ClassVar[str] = "bfloat16"
    weights: ClassVar[str] = "bfloat16"
    abbreviation: ClassVar[str] = "bf16"

    def register(self) -> None:
        super().register()
        _register_bfloat16()


FRAGMENTS: dict[str, Fragments] = {
    instruction.data: instruction for instruction in (Float16Fragments(), Bfloat16Fragments())
}
"""The instructions for fragments, by the dtype of their operands."""


@cache
def _register_bfloat16() -> None:
    """Register bfloat16 intrinsics with TVM, under names of the same form as those of float16."""
    from tvm.s_tir.tensor_intrin import cuda  # noqa: PLC0415 - this import is slow

    def register(name: str, pair: tuple[Any, Any]) -> None:
        tvm.s_tir.TensorIntrin.register(name, *pair, override=True)

    def load(*, is_b: bool, transposed: bool) -> tuple[Any, Any]:
        pair: tuple[Any, Any] = cuda.get_wmma_load_intrin(
            SIDE, SIDE, SIDE, "bfloat16", "shared", is_b, transposed
        )
        return pair

    register("wmma_load_16x16x16_bf16_a_shared", load(is_b=False, transposed=False))
    for name, transposed in (("", False), ("_trans", True)):
        register(f"wmma_load_16x16x16_bf16_b{name}_shared", load(is_b=True, transposed=transposed))
        product = cuda.get_wmma_sync_intrin(SIDE, SIDE, SIDE, "bfloat16", "float32", transposed)
        register(f"wmma_sync_16x16x16_bf16bf16f32{name}", product)
