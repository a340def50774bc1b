"""Options of the space ``auto``, which are checked before a run imports TVM."""

from __future__ import annotations

from typing import Any

import attrs

from chameleon_tvm.spaces.sketch.options import SketchOptions
from chameleon_tvm.spaces.template.options import Algorithm, TemplateOptions

_TEMPLATE = attrs.fields(TemplateOptions)


@attrs.frozen(kw_only=True)
class AutoOptions(SketchOptions):
    """Options of the space ``auto``: the options of ``sketch`` and of ``template``.

    Attributes:
        algorithms: Algorithms to choose from; see :class:`.TemplateOptions`.
        max_error: Largest expected error of an algorithm; see :class:`.TemplateOptions`.
        templates: Names of preferred templates; see :class:`.TemplateOptions`.
    """

    algorithms: tuple[Algorithm, ...] = attrs.field(
        default=_TEMPLATE.algorithms.default,
        converter=tuple,
        validator=_TEMPLATE.algorithms.validator,
        metadata=_TEMPLATE.algorithms.metadata,
    )
    max_error: float | None = attrs.field(
        default=_TEMPLATE.max_error.default,
        validator=_TEMPLATE.max_error.validator,
        metadata=_TEMPLATE.max_error.metadata,
    )
    templates: tuple[str, ...] = attrs.field(
        default=_TEMPLATE.templates.default, converter=tuple, metadata=_TEMPLATE.templates.metadata
    )

    @property
    def template(self) -> TemplateOptions:
        """The options of the space ``template`` among these."""
        chosen: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in attrs.fields(TemplateOptions)
        }
        return TemplateOptions(**chosen)
