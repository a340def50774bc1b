"""The template of attention, by vectors or by tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import Arrays, DesignSpace, Task

from chameleon_tvm._device.targets import target_info
from chameleon_tvm._instructions.base import Instruction
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._spaces.template.algorithms import (
    Algorithm,
    MultiAlgorithmTemplate,
    allowed_algorithms,
    allowed_names,
)
from chameleon_tvm._spaces.template.arithmetic import scores_dot
from chameleon_tvm._spaces.template.attention_loops import AttentionLoops
from chameleon_tvm._spaces.template.attention_parts import AttentionTile
from chameleon_tvm._spaces.template.attention_tile_parts import AttentionBlock
from chameleon_tvm._spaces.template.attention_tiles import AttentionByTiles
from chameleon_tvm._spaces.template.attention_tiling import (
    TILE_KNOBS,
    AttentionTileTiling,
    AttentionTiling,
)
from chameleon_tvm._spaces.template.options import ALGORITHM, DIRECT, SPLIT_PARTS, TemplateOptions
from chameleon_tvm._spaces.template.split_algorithm import split_error, split_product_of
from chameleon_tvm._spaces.template.tile_packing import LANES, STEP, supports
from chameleon_tvm._spaces.template.tile_tiling import PRODUCTS_OF_PARTS
from chameleon_tvm._types import FLOAT32


class AttentionDirect(Algorithm):
    """The direct algorithm of attention, with vectors.

    Exponentials are float32, and so are values when they are multiplied. The kernel multiplies
    16-bit queries and keys without widening them if the CPU has an instruction for that.
    """

    names = (DIRECT,)
    preferred = False

    def __init__(self, spec: AttentionSpec, target: str) -> None:
        self.spec = spec
        self.info = target_info(target)
        self.dot = scores_dot(spec, target)

    def space(self) -> DesignSpace:
        return AttentionTiling(self.spec, self.info, self.dot.depth).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        lanes = self.info.lanes(FLOAT32)
        return AttentionLoops(self.spec, _tile_of(values), lanes, self.dot).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # there are no constants
        return constants


def _tile_of(values: Mapping[str, Any]) -> AttentionTile:
    """The tile of a decoded configuration of vectors."""
    sizes = {name: values[name] for name in (*TILE_KNOBS, "unroll")}
    return AttentionTile(copy=values["keys"] == "copy", **sizes)


def _short_tile(spec: AttentionSpec) -> AttentionTile:
    """A tile of vectors for infinities and NaN, whose code is short, so that it compiles fast."""
    keys = spec.key[2]
    block = min(128, keys)
    return AttentionTile(
        query_vectors=1,
        key_rows=min(4, (keys - 1) % block + 1),
        query_rows=4,
        value_vectors=1,
        key_block=block,
        copy=spec.key_layout == "BHDS",
        unroll=1,
        overlap=True,
    )


@attrs.frozen(kw_only=True, eq=False)
class AttentionSplit(Algorithm):
    """Attention of float32 by tiles of bfloat16: ``split3`` and ``split6``.

    Attributes:
        direct: The direct algorithm, which computes infinities and NaN.
    """

    names: Sequence[str]
    product: TileProduct
    direct: AttentionDirect

    @property
    def instructions(self) -> Sequence[Instruction]:  # type: ignore[override]
        return (self.product,)

    def space(self) -> DesignSpace:
        parts = {name: SPLIT_PARTS[name] for name in self.names}
        direct = self.direct
        return AttentionTileTiling(direct.spec, direct.info, self.product, parts).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        direct = self.direct
        tile = _short_tile(direct.spec)
        block = AttentionBlock(
            query_tiles=values["product_queries"],
            columns=values["product_vectors"],
            steps=values["product_keys"] // STEP,
        )
        loops = AttentionByTiles(
            direct.spec,
            tile,
            direct.info.lanes(FLOAT32),
            block=block,
            product=self.product,
            parts=SPLIT_PARTS[values[ALGORITHM]],
        )
        return loops.function()

    def work(self, values: Mapping[str, Any]) -> float:
        parts = SPLIT_PARTS[values[ALGORITHM]]
        return PRODUCTS_OF_PARTS[parts, parts]

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # there are no constants
        return constants


def _split(direct: AttentionDirect, target: str, options: TemplateOptions) -> list[Algorithm]:
    """The algorithms with tiles that the options allow, if queries and keys fill tiles."""
    spec = direct.spec
    names = allowed_names(options, SPLIT_PARTS, split_error)
    queries, keys = spec.scores[2:]
    small = queries < LANES or keys < STEP or min(spec.query[3], spec.value[3]) < LANES
    if not names or spec.dtype != FLOAT32 or small:
        return []
    product = split_product_of(target)
    if product is None or not supports(product):
        return []
    return [AttentionSplit(names=names, product=product, direct=direct)]


class AttentionTemplate(MultiAlgorithmTemplate):
    """Template of attention: scores, softmax and product with values in one function."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        direct = AttentionDirect(AttentionSpec.of(task), task.target)
        split = _split(direct, task.target, options)
        self.algorithms = allowed_algorithms(options, [direct], split)
        self.shapes: Mapping[str, Sequence[int]] = {}
