"""Constant inputs packed, outside the clock, into the layout that a schedule reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.quick_tvm import Schedule, tvm
from chameleon_tvm.spaces.sketch.expressions import evaluate

REWRITE = "meta_schedule.layout_rewrite_preproc"
_FREE = "layout_free_buffers"


def layout_maps(schedule: Schedule) -> dict[str, Any]:
    """The index map of every input whose layout the post-processor rewrote, by buffer name.

    The rewriting post-processor copies the input in a block of its own, annotated, and lays the
    copy out anew. The copy's write region says where each element of the input goes.
    """
    maps: dict[str, Any] = {}
    for handle in schedule.get_child_blocks(schedule.get_sblock("root")):
        block = schedule.get(handle)
        if REWRITE in block.annotations:
            read, written = block.reads[0], block.writes[0]
            maps[str(read.source.name)] = (
                [dimension.min for dimension in read.region],
                [dimension.min for dimension in written.region],
                tuple(int(extent) for extent in written.source.shape),
            )
    return maps


def pack(array: NDArray[Any], layout: Any) -> NDArray[Any]:
    """An input in its rewritten layout.

    Args:
        array: the input in its original layout.
        layout: one of ``layout_maps``' values.
    """
    read, written, shape = layout
    order = [str(index.name) for index in read]
    variables: Mapping[str, Any] = dict(
        zip(order, np.ogrid[tuple(slice(extent) for extent in array.shape)], strict=True)
    )
    packed = np.zeros_like(array, order="C", shape=shape)
    packed[tuple(evaluate(index, variables) for index in written)] = array
    return packed


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
