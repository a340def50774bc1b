"""Extents of parallel loops, which decide into how many pieces a loop is cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chameleon_tvm.quick_tvm import tirx
from tvm_ffi.structural import WalkResult, structural_walk


def parallel_extents(function: tirx.PrimFunc) -> tuple[int, ...]:
    """Extents of a function's parallel loops in the order of its text, 0 if one is not constant.

    Loops inside of a parallel loop belong to its body. TVM drops those of a single iteration.

    Args:
        function: scheduled.
    """
    extents: list[int] = []

    def add(loop: Any) -> WalkResult:
        if int(loop.kind) != int(tirx.ForKind.PARALLEL):
            return WalkResult.ADVANCE
        constant = isinstance(loop.extent, tirx.IntImm)
        extent = int(loop.extent) if constant else 0
        if extent == 1:
            return WalkResult.ADVANCE
        extents.append(extent)
        return WalkResult.SKIP

    structural_walk(function.body, (tirx.For, add), order="pre")
    return tuple(extents)


def extents_by_symbol(functions: Iterable[tuple[Any, Any]]) -> dict[str, tuple[int, ...]]:
    """``parallel_extents`` of a module's functions, by their names.

    Args:
        functions: pairs of variable and function, as ``IRModule.functions_items`` yields them.
    """
    return {str(variable.name_hint): parallel_extents(function) for variable, function in functions}
