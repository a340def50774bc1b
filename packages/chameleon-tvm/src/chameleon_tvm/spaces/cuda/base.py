"""What all CUDA templates share: a nest, its space, and schedules that are checked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from chameleon_core.space import DesignSpace
from chameleon_core.task import Task

from chameleon_tvm.device.gpus import gpu_info
from chameleon_tvm.device.targets import tvm_target
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.cuda.nest import Nest
from chameleon_tvm.spaces.cuda.schedule import Blocks, scheduled
from chameleon_tvm.spaces.cuda.tiling import design_space
from chameleon_tvm.spaces.cuda.verify import verify
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.options import TemplateOptions


class CudaTemplate(Template):
    """A template whose knobs tile one loop nest for a GPU.

    Args:
        task: the operator on a cuda target.
        options: of the space; there is one algorithm on GPUs, so they choose nothing.
    """

    plain_loops: ClassVar[bool] = False

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options
        self.task = task
        self.info = gpu_info(task.target)
        self.nest = self.make_nest()

    @abstractmethod
    def make_nest(self) -> Nest:
        """The loop nest of the task.

        Raises:
            ConfigError: the template does not apply.
        """

    @property
    @abstractmethod
    def blocks(self) -> Blocks:
        """The parts of the unscheduled function."""

    @cached_property
    def unscheduled(self) -> tirx.PrimFunc:
        """The operator's function on the arrays that ``pack`` and the operator make."""
        return operator_of(self.task).prim_func()

    def space(self) -> DesignSpace:
        return design_space(self.nest, self.info)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        """The function of a legal configuration.

        Raises:
            InvalidConfigurationError: it breaks a limit of the GPU all the same.
        """
        made = scheduled(self.unscheduled, self.nest, self.blocks, values)
        verify(made, tvm_target(self.task.target), self.info)
        return made
