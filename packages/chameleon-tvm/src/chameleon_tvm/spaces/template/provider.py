"""The space provider ``template``: hand-written templates for llvm targets."""

from __future__ import annotations

import importlib

from chameleon_core.errors import ConfigError
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Builder, SpaceProvider
from chameleon_core.task import Task

from chameleon_tvm.spaces.template.base import Template, TemplateBuilder
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.targets import tvm_target

_PACKAGE = "chameleon_tvm.spaces.template"
TEMPLATES = {
    "conv2d": f"{_PACKAGE}.conv2d:ConvolutionTemplate",
    "depthwise_conv2d": f"{_PACKAGE}.depthwise:DepthwiseTemplate",
    "dense": f"{_PACKAGE}.matmul:DenseTemplate",
    "batch_matmul": f"{_PACKAGE}.matmul:BatchMatmulTemplate",
}
"""Kinds of operators and their templates."""


def template_of(task: Task, options: TemplateOptions | None = None) -> Template:
    """The template of a task.

    Args:
        task: the task.
        options: of the space; the defaults where missing.

    Raises:
        ConfigError: there is none for such an operator, shape or target.
    """
    if task.operator not in TEMPLATES:
        raise ConfigError(
            f"there is no template for the operator {task.operator!r} of task {task.name!r}",
            hint="Use `space: sketch`, which works on every operator.",
        )
    kind = str(tvm_target(task.target).kind.name)
    if kind != "llvm":
        raise ConfigError(
            f"templates are for llvm targets, and the target of task {task.name!r} is {kind!r}",
            hint="Use `space: sketch`, which works on every target.",
        )
    module, _, name = TEMPLATES[task.operator].partition(":")
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
