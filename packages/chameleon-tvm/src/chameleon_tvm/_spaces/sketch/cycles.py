"""Estimates the cycles of loop nests, to choose the configurations to measure first.

The estimates are rough, but rank configurations well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm._device.targets import TargetInfo

L2_BYTES_PER_CYCLE = 64.0
"""Bytes per cycle and core from L2, a rough value. Prefetching overlaps these transfers with
arithmetic."""

MANY_INSTRUCTIONS = 256
"""Number of vector multiply-adds in an unrolled block beyond which compilers produce slow code."""
CONDITIONAL = 2.5
"""Factor by which a condition in the innermost loop slows it down."""
SKIPPED = 0.93
"""Time of reading an input in place and skipping its padding, over the time with a padded copy."""
MOVED = 1.03
"""Factor by which a kernel slows down if its sums move between memory and registers."""
EXPOSED = 0.2
"""Share of the transfers between caches that arithmetic does not hide."""
SLOWER = 1.2
"""Factor by which each known drawback slows a kernel down, a guess that ranks configurations
well."""


def cycles_of(
    facts: Mapping[str, Any], *, iterations: int, lanes: int, info: TargetInfo, rewritten: bool
) -> NDArray[np.float64]:
    """Estimate the cycles that each core needs for n configurations, shape (n,).

    Args:
        facts: The quantities of ``NestModel``, by name.
    """
    accumulators = facts["accumulators"]
    units = info.fma_units
    step = np.maximum(np.maximum(accumulators, facts["loads"]) / units, float(info.fma_latency))
    # Accumulators go to memory and back once per innermost run of reduction loops; stores
    # and loads overlap with arithmetic.
    step = step + accumulators / facts["reduction_in_registers"] / units
    step = step + facts["registers_over"] / units
    for slow in (
        facts["tile_unrolled"] == 0,  # Accumulators are addressed by loop variables.
        facts["instructions"] > MANY_INSTRUCTIONS,  # Registers are allocated badly in long blocks.
    ):
        step = step * np.where(slow, SLOWER, 1.0)
    conditional = (facts["inlined"] > 0) & (facts["skips_padding"] == 0)
    step = step * np.where(conditional, CONDITIONAL if rewritten else SLOWER, 1.0)
    step = step * np.where(facts["skips_padding"] > 0, SKIPPED, 1.0)
    step = step * np.where(facts["sums_kept"] > 0, 1.0, MOVED)
    work = accumulators * facts["vector_efficiency"] * lanes
    cycles = iterations / work * step
    # Prefetching overlaps transfers with arithmetic: the slower of them counts, the others
    # in small part.
    near = facts["traffic_l1"] / L2_BYTES_PER_CYCLE
    far = facts["traffic_l2"] / info.l3_bytes_per_cycle
    busy = np.maximum(np.maximum(cycles, near), far) + EXPOSED * (near + far)
    return np.asarray(busy / (float(info.cores) * facts["balance"]))
