"""The space provider ``auto``: a template if there is one, else sketches."""

from __future__ import annotations

from chameleon_core.errors import ConfigError
from chameleon_core.plugins.factory import make_stage
from chameleon_core.plugins.kinds import KINDS
from chameleon_core.plugins.registry import default_registry
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Builder, SpaceProvider
from chameleon_core.task import Task

from chameleon_tvm.operators.base import is_operator
from chameleon_tvm.spaces.options import AutoOptions
from chameleon_tvm.spaces.sketch.provider import SketchSpace
from chameleon_tvm.spaces.template.provider import TemplateSpace, template_of


class AutoSpace(SpaceProvider):
    """Chooses between ``template`` and ``sketch``, task by task.

    Tasks whose operator another space provider claims as its own go to that one, with its
    default options.

    Args:
        options: those of ``sketch`` and of ``template``, for the tasks that get it.
    """

    def __init__(self, options: AutoOptions) -> None:
        self._template = TemplateSpace(options.template)
        self._sketch = SketchSpace(options)

    def design_space(self, task: Task) -> DesignSpace:
        return self._provider(task).design_space(task)

    def builder(self, task: Task, *, threads: int) -> Builder:
        return self._provider(task).builder(task, threads=threads)

    def _provider(self, task: Task) -> SpaceProvider:
        record = None
        if not is_operator(task.operator):
            record = default_registry().space_of(task.operator)
        if record is not None:
            provider: SpaceProvider = make_stage(KINDS["spaces"], record, record.options())
            return provider
        try:
            template_of(task, self._template.options)
        except ConfigError:
            return self._sketch
        return self._template
