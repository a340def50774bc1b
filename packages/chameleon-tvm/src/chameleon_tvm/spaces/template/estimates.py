"""What is known of configurations of register-tiled templates without building them."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.device.targets import TargetInfo

AVX512_BYTES = 64
FLOAT_BYTES = 4

Numbers = NDArray[np.float64]


def broadcast_is_operand(info: TargetInfo) -> bool:
    """Whether a multiply-add can broadcast an element itself, as with AVX-512 alone."""
    return info.vector_bytes == AVX512_BYTES


@attrs.frozen(kw_only=True)
class Estimates:
    """What is known of n configurations without building them; every field has shape (n,).

    Attributes:
        accumulators: vector registers that hold sums.
        registers: vector registers needed in the inner loop.
        loads_per_fma: vector and broadcast loads per multiply-add of the inner loop.
        waste: computed over needed outputs.
        tasks: parallel pieces of work.
        imbalance: time of the busiest core over that of a fair share.
        weight_bytes: weights that a tile reads.
        input_bytes: inputs that a tile reads.
        versions: pieces of code for borders.
        run: iterations of the innermost loop.
        skipped: fraction of multiplications not done because their tap is in the padding.
        copied: bytes written while copying the input, per flop.
        traffic: bytes that the outer loops read again and again and L2 does not hold, per flop.
    """

    accumulators: Numbers
    registers: Numbers
    loads_per_fma: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    weight_bytes: Numbers
    input_bytes: Numbers
    versions: Numbers
    run: Numbers
    skipped: Numbers
    copied: Numbers
    traffic: Numbers
