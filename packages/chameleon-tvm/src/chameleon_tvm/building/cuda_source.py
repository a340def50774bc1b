"""The CUDA source of a scheduled function, for those who want to read or compile it."""

from __future__ import annotations

from chameleon_tvm.quick_tvm import tirx, tvm


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
