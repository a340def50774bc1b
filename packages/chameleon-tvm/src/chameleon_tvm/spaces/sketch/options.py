"""Options of the sketch space; imports nothing heavy, so that ``validate`` stays quick."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.plugins.options import option


@attrs.frozen(kw_only=True)
class SketchOptions:
    """Options of the ``sketch`` space.

    Attributes:
        rules: which of TVM's schedule rules generate the sketches.
        prune: whether points that cannot be fast are left out of the space.
        rewrite_layout: whether constant inputs are packed to suit the schedule.
        rewrite_sums: whether, on CPUs, tiles of sums are kept in registers and products of padded
            zeros are skipped, which MetaSchedule's own programs do not do.
        start: how many analytically ranked configurations are offered to be measured first.
        max_choices: the largest number of factorisations one tile knob may have.
        seed: of the generator, which samples what its rules leave open.
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
