"""The space provider ``template``: hand-written templates for llvm and cuda targets."""

from __future__ import annotations

import importlib

from chameleon_core.errors import ConfigError
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Builder, SpaceProvider
from chameleon_core.task import Task

from chameleon_tvm.spaces.template.base import Template, TemplateBuilder
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.targets import tvm_target

_CPU = "chameleon_tvm.spaces.template"
_GPU = "chameleon_tvm.spaces.cuda"
TEMPLATES = {
    "llvm": {
        **dict.fromkeys(("conv1d", "conv2d", "conv3d"), f"{_CPU}.conv2d:ConvolutionTemplate"),
        **dict.fromkeys(
            ("depthwise_conv1d", "depthwise_conv2d", "depthwise_conv3d"),
            f"{_CPU}.depthwise:DepthwiseTemplate",
        ),
        "dense": f"{_CPU}.matmul:DenseTemplate",
        "batch_matmul": f"{_CPU}.matmul:BatchMatmulTemplate",
        "loops": "chameleon_tvm.spaces.loops.template:LoopTemplate",
        "attention": f"{_CPU}.attention:AttentionTemplate",
    },
    "cuda": {
        "conv2d": f"{_GPU}.implicit_gemm:convolution_template",
        "depthwise_conv2d": f"{_GPU}.convolution:DepthwiseTemplate",
        "dense": f"{_GPU}.matmul:dense_template",
        "batch_matmul": f"{_GPU}.matmul:batch_matmul_template",
    },
}
"""Kinds of targets, kinds of operators, and their templates."""


def template_of(task: Task, options: TemplateOptions | None = None) -> Template:
    """The template of a task.

    Args:
        task: the task.
        options: of the space; the defaults where missing.

    Raises:
        ConfigError: there is none for such an operator, shape or target.
    """
    kind = str(tvm_target(task.target).kind.name)
    if kind not in TEMPLATES:
        raise ConfigError(
            f"templates are for {' and '.join(TEMPLATES)} targets, and the target of task "
            f"{task.name!r} is {kind!r}",
            hint="Use `space: sketch`, which works on every target.",
        )
    if task.operator not in TEMPLATES[kind]:
        raise ConfigError(
            f"there is no template for the operator {task.operator!r} of task {task.name!r}",
            hint="Use `space: sketch`, which works on every operator.",
        )
    module, _, name = TEMPLATES[kind][task.operator].partition(":")
    template: Template = getattr(importlib.import_module(module), name)(
        task, options or TemplateOptions()
    )
    return template


class TemplateSpace(SpaceProvider):
    """Design spaces of hand-written templates.

    Args:
        options: which algorithms convolutions choose from.
    """

    def __init__(self, options: TemplateOptions) -> None:
        self.options = options

    def design_space(self, task: Task) -> DesignSpace:
        return template_of(task, self.options).space()

    def builder(self, task: Task, *, threads: int) -> Builder:
        return TemplateBuilder(template_of(task, self.options), task, threads=threads)
