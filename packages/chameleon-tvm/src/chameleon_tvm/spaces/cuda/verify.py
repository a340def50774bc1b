"""TVM's own check of GPU code, run before anything is built."""

from __future__ import annotations

from functools import cache

from chameleon_core.errors import InvalidConfigurationError

from chameleon_tvm.device.gpus import MAX_VECTOR_BYTES, GpuInfo
from chameleon_tvm.quick_tvm import tirx, tvm


def verify(function: tirx.PrimFunc, target: tvm.target.Target, info: GpuInfo) -> None:
    """Refuse a scheduled function that breaks a limit of its target.

    Args:
        function: scheduled.
        target: what it is for.
        info: the same target's limits.

    Raises:
        InvalidConfigurationError: it breaks one, or TVM cannot lower it; says which or why.
    """
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    try:
        with target:
            lowered = _lowering()(module)["main"]
    except (tvm.error.InternalError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidConfigurationError(f"TVM cannot lower the schedule: {lines[-1]}") from error
    limits = limits_of(info)
    check = tvm.s_tir.analysis.verify_gpu_code
    if check(lowered, limits):
        return
    broken = [
        f"{name} of {most}" for name, most in limits.items() if not check(lowered, {name: most})
    ]
    raise InvalidConfigurationError(
        f"TVM's GPU check refuses it: it exceeds {' and '.join(broken)}"
    )


def limits_of(info: GpuInfo) -> dict[str, int]:
    """A target's limits under the names that ``verify_gpu_code`` knows."""
    return {
        "max_threads_per_block": info.max_threads_per_block,
        "max_shared_memory_per_block": info.max_shared_memory_per_block,
        "max_vector_bytes": MAX_VECTOR_BYTES,
    }


@cache
def _lowering() -> tvm.transform.Sequential:
    """TVM's way from blocks to a kernel, as far as the check needs it."""
    s_tir = tvm.s_tir.transform
    return tvm.transform.Sequential(
        [
            s_tir.LowerCrossThreadReduction(),
            s_tir.LowerInitBlock(),
            s_tir.PlanAndUpdateBufferAllocationLocation(),
            s_tir.ConvertBlocksToOpaque(),
            s_tir.LiftThreadBinding(),
            s_tir.CompactBufferAllocation(),
            s_tir.LowerAutoCopy(),
            s_tir.UnifyThreadBinding(),
            s_tir.LowerMatchBuffer(),
            s_tir.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.NarrowDataType(32),
            tirx.transform.StmtSimplify(),
            tirx.transform.VectorizeLoop(enable_vectorize=True),
            s_tir.InjectVirtualThread(),
            tirx.transform.StorageRewrite(),
        ]
    )
