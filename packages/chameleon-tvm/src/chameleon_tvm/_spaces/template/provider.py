"""The space provider ``template``: hand-written templates for CPU and CUDA targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import attrs
from chameleon_core.api import Registry
from chameleon_core.plugin_api import (
    KINDS,
    Builder,
    ConfigError,
    DesignSpace,
    PluginError,
    SpaceProvider,
    Task,
    TemplateRecord,
    load_factory,
)

from chameleon_tvm._device.targets import kind_of
from chameleon_tvm._operators.base import PACKAGE_OPERATORS
from chameleon_tvm._spaces.template.base import Template, TemplateBuilder
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.records import TEMPLATES

_CACHE_SIZE = 512
"""Number of templates that a process keeps: a run asks for the same ones several times."""


def template_of(task: Task, options: TemplateOptions | None = None) -> Template:
    """The template of a task.

    Args:
        options: Options of the space; None for the defaults.

    Raises:
        ConfigError: No template supports the task's operator, shapes or target.
        PluginError: Several templates support the task, the options name an unknown template, or a
            template's code fails.
    """
    settings = options or TemplateOptions()
    return _cached_template(
        _TemplateKey(task.key, task.name, settings, task, _record_of(task, settings.templates))
    )


@attrs.frozen
class _TemplateKey:
    """The task, options and record that determine a template."""

    key: str
    name: str
    options: TemplateOptions
    task: Task = attrs.field(eq=False)
    record: TemplateRecord = attrs.field(eq=False)
    factory: Any = attrs.field(
        init=False, default=attrs.Factory(lambda key: load_factory(key.record.factory), True)
    )


@lru_cache(maxsize=_CACHE_SIZE)
def _cached_template(key: _TemplateKey) -> Template:
    template: Template = KINDS["templates"].make(key.record, key.task, key.options)
    return template


def _record_of(task: Task, preferred: Sequence[str]) -> TemplateRecord:
    target = kind_of(task.target)
    for name in preferred:
        record: TemplateRecord = Registry.default().record("templates", name)
        if task.operator in record.operators and target in record.targets:
            return record
    known = _known_records(task.operator)
    records = [entry for entry in known if task.operator in entry.operators]
    fitting = [entry for entry in records if target in entry.targets]
    if len(fitting) > 1:
        names = " and ".join(f"'{entry.name}'" for entry in fitting)
        raise PluginError(
            f"the templates {names} are for operators such as task {task.name!r}, "
            f"{task.operator!r} on {target}",
            hint=f"choose one: `space: {{name: template, templates: [{fitting[0].name}]}}`",
        )
    if fitting:
        return fitting[0]
    targets = dict.fromkeys(target for record in records or known for target in record.targets)
    if target not in targets and targets:
        raise ConfigError(
            f"templates are for {' and '.join(targets)} targets, and the target of task "
            f"{task.name!r} is {target!r}",
            hint="Use `space: sketch`, which works on every target.",
        )
    raise ConfigError(
        f"there is no template for the operator {task.operator!r} of task {task.name!r}",
        hint="Use `space: sketch`, which works on every operator.",
    )


def _known_records(operator: str) -> Sequence[TemplateRecord]:
    """The records of templates that may support an operator.

    Operators of this package have only its own templates, so worker processes load no plugins.
    """
    if operator in PACKAGE_OPERATORS:
        return TEMPLATES
    return [entry.record for entry in Registry.default().entries("templates")]


class TemplateSpace(SpaceProvider):
    """The space provider of hand-written templates.

    Args:
        options: Preferred templates, and the algorithms that convolutions choose from.
    """

    preloads: ClassVar[tuple[str, ...]] = ("chameleon_tvm._quick_tvm",)

    def __init__(self, options: TemplateOptions) -> None:
        self.options = options

    def design_space(self, task: Task) -> DesignSpace:
        return template_of(task, self.options).design_space

    def builder(self, task: Task, *, threads: int) -> Builder:
        return TemplateBuilder(template_of(task, self.options), task, threads=threads)
