"""Lowers a scheduled function of blocks to loops over arrays, in vectors."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.operators.elementary import FUNCTIONS
from chameleon_tvm.quick_tvm import tirx, tvm
from chameleon_tvm.spaces.loops.trees import structural_map
from chameleon_tvm.spaces.loops.vectors import with_vectors
from chameleon_tvm.spaces.sketch.lowered import BLOCKS

LANES = "chameleon.vector_lanes"
"""Attribute of functions that ``loops_of`` is for: float32 elements of a vector register."""

_LOOPS = (
    tirx.transform.ConvertSSA(),
    tirx.transform.FlattenBuffer(),
    tirx.transform.NarrowDataType(32),
    tirx.transform.VectorizeLoop(),
    tirx.transform.StorageRewrite(),
    tirx.transform.UnrollLoop(),
    tirx.transform.StmtSimplify(),
)


def loops_of(function: Any) -> Any:
    """A scheduled function as loops over arrays, which the short way of ``lowering`` compiles.

    Args:
        function: with the attribute ``LANES``.
    """
    named = "global_symbol" in function.attrs
    marked = function if named else function.with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": marked})
    for step in BLOCKS:
        module = step(module)
    main = module["main"]
    body = with_vectors(without_library_calls(main.body), int(function.attrs[LANES]))
    module = tvm.IRModule({"main": main.with_body(body)})
    for step in _LOOPS:
        module = step(module)
    made = module["main"]
    return made if named else made.without_attr("global_symbol")


def without_library_calls(statement: Any) -> Any:
    """A statement whose elementary functions of float32 are arithmetic, which fits vectors."""

    def mapped(call: Any) -> Any:
        name = str(getattr(call.op, "name", "")).removeprefix("tirx.")
        if name not in FUNCTIONS or str(call.ty) != "float32":
            return call
        return FUNCTIONS[name](call.args[0])

    return structural_map(statement, [(tvm.ir.Call, mapped)])
