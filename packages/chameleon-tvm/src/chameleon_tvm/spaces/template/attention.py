"""The template of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.device.targets import target_info
from chameleon_tvm.operators.specs import AttentionSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template.arithmetic import scores_dot
from chameleon_tvm.spaces.template.attention_loops import AttentionLoops
from chameleon_tvm.spaces.template.attention_parts import AttentionTile
from chameleon_tvm.spaces.template.attention_tiling import AttentionTiling
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.options import TemplateOptions


class AttentionTemplate(Template):
    """Scores, softmax and the product with values in one function, in the layouts they have.

    Queries and keys of two bytes are multiplied as they are where an instruction does so, and
    widened first elsewhere. Powers of scores stay float32, and values are widened for them.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options  # there is one algorithm
        self.spec = AttentionSpec.of(task)
        self.info = target_info(task.target)
        self.dot = scores_dot(self.spec, task.target)

    def space(self) -> DesignSpace:
        return AttentionTiling(self.spec, self.info, self.dot.depth).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        tile = AttentionTile(
            query_vectors=values["query_vectors"],
            key_rows=values["key_rows"],
            query_rows=values["query_rows"],
            value_vectors=values["value_vectors"],
            block=values["key_block"],
            copy=values["keys"] == "copy",
            unroll=values["unroll"],
        )
        lanes = self.info.lanes("float32")
        return AttentionLoops(self.spec, tile, lanes, self.dot).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values
        return constants  # there are none
