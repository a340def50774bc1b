"""TVM's WMMA intrinsics by element type; those of bfloat16 are made of TVM's generators."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs

from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.spaces.sketch.intrinsics import load_tensor_intrinsics

SIDE = 16
"""Rows, columns and depth of a fragment."""


@attrs.frozen(kw_only=True)
class Intrinsics:
    """Names of the intrinsics that multiply fragments with float32 sums.

    Attributes:
        load: of the left and the right side, from shared memory.
        fill: zeros sums.
        multiply: adds a product to the sums.
        store: puts sums into shared memory.
    """

    load: tuple[str, str]
    fill: str
    multiply: str
    store: str


def intrinsics_of(dtype: str, *, transposed: bool) -> Intrinsics:
    """The intrinsics of an element type, registered with TVM.

    Args:
        dtype: float16 or bfloat16.
        transposed: whether the right side is stored as (n, k).
    """
    load_tensor_intrinsics()
    short = "f16"
    if dtype == "bfloat16":
        short = "bf16"
        _register_bfloat16()
    turned = "_trans" if transposed else ""
    return Intrinsics(
        load=(
            f"wmma_load_16x16x16_{short}_a_shared",
            f"wmma_load_16x16x16_{short}_b{turned}_shared",
        ),
        fill="wmma_fill_16x16x16_f32",
        multiply=f"wmma_sync_16x16x16_{short}{short}f32{turned}",
        store="wmma_store_16x16x16_f32_shared_dyn",
    )


@cache
def _register_bfloat16() -> None:
    """Give TVM the intrinsics that it has for float16, under names of the same form."""
    from tvm.s_tir.tensor_intrin import cuda  # noqa: PLC0415 - slow unless loaded before

    def register(name: str, pair: tuple[Any, Any]) -> None:
        tvm.s_tir.TensorIntrin.register(name, *pair, override=True)

    def load(*, is_b: bool, turned: bool) -> tuple[Any, Any]:
        made: tuple[Any, Any] = cuda.get_wmma_load_intrin(
            SIDE, SIDE, SIDE, "bfloat16", "shared", is_b, turned
        )
        return made

    register("wmma_load_16x16x16_bf16_a_shared", load(is_b=False, turned=False))
    for name, turned in (("", False), ("_trans", True)):
        register(f"wmma_load_16x16x16_bf16_b{name}_shared", load(is_b=True, turned=turned))
        product = cuda.get_wmma_sync_intrin(SIDE, SIDE, SIDE, "bfloat16", "float32", turned)
        register(f"wmma_sync_16x16x16_bf16bf16f32{name}", product)
