"""A short pipeline of TVM passes for functions that consist only of loops over arrays.

On straight-line tiles, TVM's default pipeline takes as long as LLVM, which merges common
subexpressions and hoists invariants anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from chameleon_tvm._late_tvm import tirx, tvm
from chameleon_tvm._opaque import blocks_pipeline, with_lowered_operators

PLAIN_LOOPS = "chameleon-plain-loops"
"""Name of the pipeline for CPU functions without TVM's blocks. They consist of serial and parallel
loops, explicit vectors and local buffers, with 32-bit indices."""

UNCHECKED = {"tirx.disable_assert": True}
"""Callers pass arrays of the shapes that a function was built for. Code that checks them would take
a third of the build time."""


def compile_function(
    function: tirx.PrimFunc, target: tvm.target.Target, *, plain_loops: bool = False
) -> tvm.runtime.Module:
    """Compile a function to a module that this process can run, as ``lower_function`` does."""
    return lower_function(function, target, plain_loops=plain_loops).jit()


def lower_function(
    function: tirx.PrimFunc, target: tvm.target.Target, *, plain_loops: bool = False
) -> tvm.runtime.Executable:
    """Compile a function for a target, to code that can be linked into a library.

    The target may be another machine than this one, because this process does not load the code.

    Args:
        function: The scheduled function, which gets the name ``main``.
        target: The target to compile for.
        plain_loops: Whether to compile with Chameleon's short pipeline ``PLAIN_LOOPS``, which takes
            less time than TVM's default pipeline. True is allowed only for CPU functions without
            TVM's blocks. They must consist of serial and parallel loops, explicit vectors and local
            buffers, with 32-bit indices.
    """
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    pipeline = plain_loops_pipeline() if plain_loops else blocks_pipeline()
    with tvm.transform.PassContext(config=UNCHECKED):
        return tvm.compile(module, target=target, tir_pipeline=pipeline)


@cache
def plain_loops_pipeline() -> str:
    """The name of Chameleon's short pipeline of passes in TVM, which the first call registers."""
    tirx.register_tir_pipeline(PLAIN_LOOPS, _passes)
    return PLAIN_LOOPS


def _passes() -> tuple[object, object, object]:
    """The passes of the pipeline, and the passes that finish host and device functions."""
    passes = [
        tirx.transform.FlattenBuffer(),
        separate_buffers(),
        tirx.transform.StmtSimplify(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.BF16StorageLegalize(),
    ]
    _, host, device = tirx.get_tir_pipeline("default")
    return tvm.transform.Sequential(passes), with_lowered_operators(host), device


def separate_buffers() -> Callable[[tvm.IRModule], tvm.IRModule]:
    """A pass that gives each array memory of its own, so that LLVM can keep arrays in registers.

    TVM's ``StorageRewrite`` lets arrays share memory, unless ``merge_static_smem`` is set.
    """

    def rewrite(module: tvm.IRModule, _: object) -> tvm.IRModule:
        with tvm.transform.PassContext(config={"tirx.merge_static_smem": True}):
            return tirx.transform.StorageRewrite()(module)

    result: Callable[[tvm.IRModule], tvm.IRModule] = tvm.transform.module_pass(
        rewrite, opt_level=0, name="ArraysApart"
    )
    return result


def cuda_source(function: tirx.PrimFunc, target: tvm.target.Target) -> str:
    """Generate the CUDA source of a function's kernels, without a GPU or nvcc."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    # An export may have loaded the CUDA compiler into this process. The compiler needs the target.
    with target, tvm.transform.PassContext(config=UNCHECKED):
        built = tvm.compile(module, target=target.with_host("llvm"), tir_pipeline=blocks_pipeline())
    (device,) = built.mod.imports
    return str(device.inspect_source())
