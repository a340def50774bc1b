"""Roughly estimates the cycles of loop nests, to rank the configurations to measure first."""

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
CONDITION_SLOWDOWN = 2.5
"""Factor by which a condition in the innermost loop slows it down."""
SKIPPING_FACTOR = 0.93
"""Time of reading an input in place and skipping its padding, over the time with a padded copy."""
SPILL_SLOWDOWN = 1.03
"""Factor by which a kernel slows down if its sums move between memory and registers."""
EXPOSED_SHARE = 0.2
"""Share of the transfers between caches that arithmetic does not hide."""
SLOWDOWN = 1.2
"""Factor by which each known drawback slows a kernel down, a guess that ranks configurations
well."""


def cycles_of(
    quantities: Mapping[str, Any], *, iterations: int, lanes: int, info: TargetInfo, rewritten: bool
) -> NDArray[np.float64]:
    """Estimate the cycles of each core, from the quantities of ``NestModel``; shape (n,)."""
    accumulators = quantities["accumulators"]
    units = info.fma_units
    step = np.maximum(
        np.maximum(accumulators, quantities["loads"]) / units, float(info.fma_latency)
    )
    # Accumulators go to memory and back once per innermost run of reduction loops; stores
    # and loads overlap with arithmetic.
    step = step + accumulators / quantities["reduction_in_registers"] / units
    step = step + quantities["registers_over"] / units
    for slow in (
        quantities["tile_unrolled"] == 0,  # Accumulators are addressed by loop variables.
        quantities["instructions"]
        > MANY_INSTRUCTIONS,  # Registers are allocated badly in long blocks.
    ):
        step = step * np.where(slow, SLOWDOWN, 1.0)
    conditional = (quantities["inlined"] > 0) & (quantities["skips_padding"] == 0)
    step = step * np.where(conditional, CONDITION_SLOWDOWN if rewritten else SLOWDOWN, 1.0)
    step = step * np.where(quantities["skips_padding"] > 0, SKIPPING_FACTOR, 1.0)
    step = step * np.where(quantities["sums_kept"] > 0, 1.0, SPILL_SLOWDOWN)
    work = accumulators * quantities["vector_efficiency"] * lanes
    cycles = iterations / work * step
    # Prefetching overlaps transfers with arithmetic. The slowest of them counts fully, and the
    # transfers count a small part again.
    near = quantities["traffic_l1"] / L2_BYTES_PER_CYCLE
    far = quantities["traffic_l2"] / info.l3_bytes_per_cycle
    busy = np.maximum(np.maximum(cycles, near), far) + EXPOSED_SHARE * (near + far)
    return np.asarray(busy / (float(info.cores) * quantities["balance"]))
