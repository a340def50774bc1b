"""The space provider ``auto``: a template if the task has one, else a sketch."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from chameleon_core.api import Registry
from chameleon_core.plugin_api import KINDS, Builder, ConfigError, DesignSpace, SpaceProvider, Task

from chameleon_tvm._operators.base import is_operator
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace, template_of


class AutoSpace(SpaceProvider):
    """Chooses between the spaces ``template`` and ``sketch`` for each task.

    If a plugin's space provider claims the task's kind of operator, that provider is used with its
    default options.

    Args:
        options: The options of ``sketch`` and ``template``, for the tasks that use them.
    """

    preloads: ClassVar[tuple[str, ...]] = TemplateSpace.preloads

    def __init__(self, options: AutoOptions) -> None:
        self._template = TemplateSpace(options)
        self._options = options

    @cached_property
    def _sketch(self) -> SpaceProvider:
        # The sketch space imports TVM at once, which most tasks do not need.
        sketch: SpaceProvider = Registry.default().create("spaces", "sketch", self._options)
        return sketch

    def design_space(self, task: Task) -> DesignSpace:
        return self._provider(task).design_space(task)

    def builder(self, task: Task, *, threads: int) -> Builder:
        return self._provider(task).builder(task, threads=threads)

    def _provider(self, task: Task) -> SpaceProvider:
        own = is_operator(task.operator)
        record = None if own else Registry.default().space_of(task.operator)
        if record is not None:
            provider: SpaceProvider = KINDS["spaces"].make_stage(record, record.options())
            return provider
        try:
            template_of(task, self._template.options)
        except ConfigError:
            return self._sketch
        return self._template
