"""Packs constant inputs into the layout that a schedule reads, before anything is timed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm._quick_tvm import Schedule, tvm
from chameleon_tvm._spaces.sketch.expressions import evaluate

REWRITE = "meta_schedule.layout_rewrite_preproc"
_FREE = "layout_free_buffers"


def layout_maps(schedule: Schedule) -> dict[str, Any]:
    """The index maps of inputs whose layout MetaSchedule's post-processor changed, by name.

    The post-processor copies such an input in an annotated block.
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
    """Convert an input to the layout that the schedule reads, an entry of ``layout_maps``."""
    read, written, shape = layout
    order = [str(index.name) for index in read]
    variables: Mapping[str, Any] = dict(
        zip(order, np.ogrid[tuple(slice(extent) for extent in array.shape)], strict=True)
    )
    packed = np.zeros_like(array, order="C", shape=shape)
    packed[tuple(evaluate(index, variables) for index in written)] = array
    return packed


def layout_free(function: tvm.tirx.PrimFunc, constants: Collection[int]) -> tvm.tirx.PrimFunc:
    """Mark exactly the constant inputs of a function as inputs that TVM may pack.

    Args:
        function: The unscheduled function.
        constants: Positions of the parameters that never change between runs.
    """
    if constants:
        return function.with_attr(_FREE, sorted(constants))
    if function.attrs and _FREE in function.attrs:
        return function.without_attr(_FREE)
    return function
