"""The base classes of CUDA templates. TVM checks their schedules against the GPU's limits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
from chameleon_core.plugin_api import Arrays, DesignSpace, InvalidConfigurationError, Task

from chameleon_tvm._device.gpus import MAX_VECTOR_BYTES, GpuInfo, gpu_info
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.cuda.nest import Nest
from chameleon_tvm._spaces.cuda.schedule import Blocks, schedule_nest
from chameleon_tvm._spaces.cuda.tiling import design_space
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm._spaces.template.options import TemplateOptions


class CudaTemplate(Template):
    """Base class of templates that schedule an operator's function for a GPU."""

    plain_loops: ClassVar[bool] = False
    weight_axes: ClassVar[tuple[int, ...]]
    """The axes of the weights in the order of their packed form."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options
        self.task = task
        self.info = gpu_info(task.target)

    @cached_property
    def unscheduled(self) -> tirx.PrimFunc:
        """The operator's unscheduled function on packed constants and arranged inputs."""
        return operator_of(self.task).prim_func()

    @abstractmethod
    def schedule_function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        """Schedule the operator's function for a legal configuration, without the check."""

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        """Schedule the operator's function for a configuration, and check the GPU's limits."""
        function = self.schedule_function(values)
        check_gpu_limits(function, tvm_target(self.task.target), self.info)
        return function

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # the order is always the same
        weights = [
            np.ascontiguousarray(array.transpose(self.weight_axes)) for array in constants[:1]
        ]
        return weights + constants[1:]


class NestTemplate(CudaTemplate):
    """Base class of CUDA templates whose knobs tile one loop nest."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        super().__init__(task, options)
        self.nest = self.make_nest()

    @abstractmethod
    def make_nest(self) -> Nest:
        """Describe the loop nest of the task.

        Raises:
            ConfigError: The template does not support the task.
        """

    @property
    @abstractmethod
    def blocks(self) -> Blocks:
        """The parts of the unscheduled function that the schedule transforms."""

    def space(self) -> DesignSpace:
        return design_space(self.nest, self.info)

    def schedule_function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return schedule_nest(self.unscheduled, self.nest, self.blocks, values)


def check_gpu_limits(function: tirx.PrimFunc, target: tvm.target.Target, info: GpuInfo) -> None:
    """Raise an error if a scheduled function needs more than the GPU has, such as registers.

    Raises:
        InvalidConfigurationError: The function exceeds a limit, or TVM cannot lower it.
    """
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    try:
        with target:
            lowered = _lowering_passes()(module)["main"]
    except (tvm.error.InternalError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidConfigurationError(f"TVM cannot lower the schedule: {lines[-1]}") from error
    limits = limits_of(info)
    check = tvm.s_tir.analysis.verify_gpu_code
    if check(lowered, limits):
        return
    exceeded = [
        f"{name} of {limit}" for name, limit in limits.items() if not check(lowered, {name: limit})
    ]
    raise InvalidConfigurationError(
        f"TVM's GPU check refuses the schedule, which exceeds {' and '.join(exceeded)}"
    )


def limits_of(info: GpuInfo) -> dict[str, int]:
    """A target's limits, by their names in TVM's ``verify_gpu_code``."""
    return {
        "max_threads_per_block": info.max_threads_per_block,
        "max_shared_memory_per_block": info.max_shared_memory_per_block,
        "max_vector_bytes": MAX_VECTOR_BYTES,
    }


@cache
def _lowering_passes() -> tvm.transform.Sequential:
    """TVM's passes from blocks to a kernel, as far as the check of limits needs them."""
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
