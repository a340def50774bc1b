"""Options of the space ``auto``, which are checked before a run imports TVM."""

from __future__ import annotations

import attrs

from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.template.options import TemplateOptions


@attrs.frozen(kw_only=True)
class AutoOptions(TemplateOptions, SketchOptions):
    """Options of the space ``auto``: the options of ``sketch`` and of ``template``."""
