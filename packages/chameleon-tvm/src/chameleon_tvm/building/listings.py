"""What a program became, for people to read: its scheduled loops, and the code made of them."""

from __future__ import annotations

from collections.abc import Mapping

from chameleon_tvm.building.kernel import Program, device_kind
from chameleon_tvm.building.lowering import lower_function
from chameleon_tvm.device.targets import tvm_target
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


TENSOR_IR, ASSEMBLY, CUDA = "TensorIR.py", "assembly.s", "kernel.cu"
"""Names of the files."""


def listings_of(program: Program, target: str) -> Mapping[str, str]:
    """The scheduled function as TVMScript, and its assembly or the source of its GPU kernels.

    Nothing runs, so that the target may be another machine's.

    Args:
        program: of a configuration.
        target: the canonical target, as ``TargetResolver.resolve`` gives it.
    """
    resolved = tvm_target(target)
    texts = {TENSOR_IR: f"{program.function.with_attr('global_symbol', 'main').script()}\n"}
    if device_kind(resolved) == "cpu":
        made = lower_function(program.function, resolved, plain_loops=program.plain_loops)
        texts[ASSEMBLY] = str(made.mod.inspect_source("asm"))
    elif device_kind(resolved) == "cuda":
        texts[CUDA] = cuda_source(program.function, resolved)
    return texts


__all__ = ["ASSEMBLY", "CUDA", "TENSOR_IR", "listings_of"]
