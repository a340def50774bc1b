"""A short way through TVM's passes for functions that are loops over arrays already.

TVM's default pipeline serves blocks, thread bindings, layouts and dtypes that the templates'
functions do not have. It takes as long as LLVM does on their straight-line tiles. LLVM merges
common subexpressions and hoists invariants itself.
"""

from __future__ import annotations

from chameleon_tvm.quick_tvm import tirx, tvm

PLAIN_LOOPS = "chameleon-plain-loops"
"""Name of the pipeline for CPU functions of serial and parallel loops, explicit vectors, and
local buffers; no blocks, and indices of 32 bits."""

_UNCHECKED = {"tirx.disable_assert": True}
"""Callers pass the arrays a function was built for: checking them costs a third of the build."""


def compile_function(
    function: tirx.PrimFunc, target: tvm.target.Target, *, plain_loops: bool = False
) -> tvm.runtime.Module:
    """A module with the function as ``main``, ready to run in this process.

    Args:
        function: scheduled.
        target: what to compile for.
        plain_loops: whether the function is one that ``PLAIN_LOOPS`` is enough for.
    """
    return lower_function(function, target, plain_loops=plain_loops).jit()


def lower_function(
    function: tirx.PrimFunc, target: tvm.target.Target, *, plain_loops: bool = False
) -> tvm.runtime.Executable:
    """Compiled code that can be linked into a library, for this machine or another one.

    Args:
        function: scheduled; becomes ``main``.
        target: what to compile for.
        plain_loops: whether the function is one that ``PLAIN_LOOPS`` is enough for.
    """
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    pipeline = PLAIN_LOOPS if plain_loops else "default"
    with tvm.transform.PassContext(config=_UNCHECKED):
        return tvm.compile(module, target=target, tir_pipeline=pipeline)


def _plain_loops() -> tuple[object, object, object]:
    """The passes, and those that finish host and device functions, as TVM's registry wants."""
    passes = [
        tirx.transform.FlattenBuffer(),
        tirx.transform.StorageRewrite(),
        tirx.transform.StmtSimplify(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.MakePackedAPI(),
    ]
    _, host, device = tirx.get_tir_pipeline("default")
    return tvm.transform.Sequential(passes), host, device


tirx.register_tir_pipeline(PLAIN_LOOPS, _plain_loops)


def cuda_source(function: tirx.PrimFunc, target: tvm.target.Target) -> str:
    """The source of a function's kernels; needs neither a GPU nor nvcc.

    Args:
        function: scheduled.
        target: of the kind cuda.
    """
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    # If an export has loaded the CUDA compiler into this process, it asks for the target here.
    with target, tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        built = tvm.compile(module, target=target.with_host("llvm"))
    (device,) = built.mod.imports
    return str(device.inspect_source())
