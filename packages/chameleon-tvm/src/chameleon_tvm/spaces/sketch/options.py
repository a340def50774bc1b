"""Options of the sketch space; imports nothing heavy, so that ``validate`` stays quick."""

from __future__ import annotations

import attrs
from attrs import validators


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

    rules: str = attrs.field(
        default="auto",
        validator=validators.in_(("auto", "llvm", "cuda", "cuda-tensorcore", "from-target")),
        metadata={"help": "TVM's schedule rules: auto, llvm, cuda, cuda-tensorcore, from-target"},
    )
    prune: bool = attrs.field(
        default=True,
        metadata={"help": "leave out points that cannot be fast (scalar code, spilled registers)"},
    )
    rewrite_layout: bool = attrs.field(
        default=True,
        metadata={"help": "pack constant inputs (weights) into the layout the schedule reads"},
    )
    rewrite_sums: bool = attrs.field(
        default=True,
        metadata={"help": "on CPUs, keep sums in registers and skip products of padded zeros"},
    )
    start: int = attrs.field(
        default=32,
        validator=validators.ge(0),
        metadata={"help": "analytically ranked configurations to measure first"},
    )
    max_choices: int = attrs.field(
        default=4096,
        validator=validators.ge(1),
        metadata={"help": "largest number of factorisations of one tile knob"},
    )
    seed: int = attrs.field(
        default=1,
        validator=[validators.ge(1), validators.lt(2**31)],
        metadata={"help": "seed of TVM's generator, which samples what its rules leave open"},
    )
