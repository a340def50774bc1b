"""Which inputs of a function a schedule may lay out anew."""

from __future__ import annotations

from collections.abc import Collection

from chameleon_tvm.quick_tvm import tvm

_FREE = "layout_free_buffers"


def layout_free(function: tvm.tirx.PrimFunc, constants: Collection[int]) -> tvm.tirx.PrimFunc:
    """The function with its constant inputs marked as free to be packed, and no others.

    Args:
        function: unscheduled.
        constants: positions of the parameters that never change between runs.
    """
    if constants:
        return function.with_attr(_FREE, sorted(constants))
    if function.attrs and _FREE in function.attrs:
        return function.without_attr(_FREE)
    return function
