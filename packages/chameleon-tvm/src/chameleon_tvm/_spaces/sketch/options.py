"""Options of the space ``sketch``. This module is cheap to import, so that checks stay fast."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class SketchOptions:
    """Options of the space ``sketch``.

    Attributes:
        rules: The set of TVM's schedule rules that derive the sketches.
        prune: Whether the space leaves out configurations that cannot be fast.
        rewrite_layout: Whether to pack constant inputs into the layout that the schedule reads.
        rewrite_sums: Whether, on CPUs, to keep tiles of sums in registers and to skip products of
            padded zeros. MetaSchedule's own programs do neither.
        start: Number of configurations to measure first, chosen by an analytical cost model.
        max_choices: Largest number of factorizations of one tile knob.
        seed: Seed of TVM's generator, which samples the choices that its rules leave open.
    """

    rules: str = option(
        "auto",
        "TVM's schedule rules: auto, llvm, cuda, cuda-tensorcore, from-target",
        validators.in_(("auto", "llvm", "cuda", "cuda-tensorcore", "from-target")),
    )
    prune: bool = option(
        True, "leave out points that cannot be fast (scalar code, spilled registers)"
    )
    rewrite_layout: bool = option(
        True, "pack constant inputs (weights) into the layout the schedule reads"
    )
    rewrite_sums: bool = option(
        True, "on CPUs, keep sums in registers and skip products of padded zeros"
    )
    start: int = option(32, "analytically ranked configurations to measure first", at_least=0)
    max_choices: int = option(4096, "largest number of factorisations of one tile knob", at_least=1)
    seed: int = option(
        1,
        "seed of TVM's generator, which samples what its rules leave open",
        validators.lt(2**31),
        at_least=1,
    )
