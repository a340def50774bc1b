"""Largest and least numbers that begin at infinity, as those of frameworks do.

TVM begins at the largest finite number, so that the largest of infinite numbers is finite.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
from chameleon_tvm.quick_tvm import tirx
from tvm_ffi.structural import structural_map

from chameleon_networks.graph.relaxed import tvm


def with_infinite_extremes(module: Any) -> Any:
    """The module with reductions that begin at infinity, not at the largest number of a type.

    Args:
        module: an ``IRModule`` of functions in TensorIR, and of others.
    """
    changed = {
        variable: _changed(function)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in changed.items():
        module.update_func(variable, function)
    return module


def _changed(function: Any) -> Any:
    def begun(block: Any) -> Any:
        if block.init is None:
            return block
        init = structural_map(block.init, (tirx.FloatImm, _infinite))
        if init.same_as(block.init):
            return block
        return tvm.s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = structural_map(function.body, (tvm.s_tir.SBlock, begun))
    return function if body.same_as(function.body) else function.with_body(body)


def _infinite(number: Any) -> Any:
    value, dtype = float(number.value), str(number.ty)
    if abs(value) < _LEAST or abs(value) != float(ml_dtypes.finfo(dtype).max):
        return number
    return tirx.FloatImm(dtype, math.copysign(math.inf, value))


_LEAST = 6e4
"""No type's largest number is smaller."""
