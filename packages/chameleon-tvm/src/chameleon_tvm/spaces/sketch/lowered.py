"""Lowers a scheduled function of blocks to loops over arrays, with few passes.

TVM's default pipeline serves thread bindings, software pipelines and dtypes that CPU sketches do
not have. Here only the passes that they need run, and between them reductions are rewritten.
"""

from __future__ import annotations

from chameleon_tvm.quick_tvm import tirx, tvm
from chameleon_tvm.spaces.sketch.reductions import rewritten

PLAIN_DTYPES = frozenset({"float32", "float64", "int32", "int64"})
"""What LLVM computes with as it is: others need passes that make them computable."""

BLOCKS = (
    tvm.s_tir.transform.LowerInitBlock(),
    tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    tvm.s_tir.transform.ConvertBlocksToOpaque(),
    tvm.s_tir.transform.CompactBufferAllocation(),
    tvm.s_tir.transform.StmtSimplify(),
    tvm.s_tir.transform.LowerOpaqueBlock(),
    tirx.transform.RemoveNoOp(),
)
"""These passes turn blocks into loops; arrays keep their rank."""

_LOOPS = (
    tirx.transform.ConvertSSA(),
    tirx.transform.FlattenBuffer(),
    tirx.transform.VectorizeLoop(),
    tirx.transform.StorageRewrite(),
    tirx.transform.UnrollLoop(),
    tirx.transform.StmtSimplify(),
)


def loops_of(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function as loops over arrays, its reductions rewritten."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    for step in BLOCKS:
        module = step(module)
    main = module["main"]
    module = tvm.IRModule({"main": main.with_body(rewritten(main.body))})
    for step in _LOOPS:
        module = step(module)
    return module["main"]
