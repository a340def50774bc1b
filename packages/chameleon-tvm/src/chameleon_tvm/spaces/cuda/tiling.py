"""Knobs, constraints, features and first guesses of CUDA templates, computed with arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from chameleon_core.space import (
    Choice,
    Constraint,
    DesignSpace,
    Factorization,
    FeatureBlock,
    Knob,
    Values,
)
from numpy.typing import NDArray

from chameleon_tvm.device.gpus import MAX_REGISTERS_PER_THREAD, MAX_VECTOR_BYTES, GpuInfo
from chameleon_tvm.spaces.cuda.estimates import (
    FLOAT_BYTES,
    GROUPS,
    NAMES,
    features,
    guessed_cost,
    registers,
)
from chameleon_tvm.spaces.cuda.nest import Nest, Operand

MAX_VIRTUAL_THREADS = 8
"""The limit that TVM's GPU check sets on ``vthread``."""
UNROLL_STEPS = (0, 512, 1500)
"""Largest number of statements of a loop body that is unrolled: the choices of AutoTVM's CUDA
templates."""
UNROLLING = (
    Choice(name="auto_unroll_max_step", options=UNROLL_STEPS),
    Choice(name="unroll_explicit", options=(0, 1)),
)
"""The knobs of ``unroll``."""
GUESSES = 16
_DRAWN = 8192
_TILE_PARTS = 4


def design_space(nest: Nest, info: GpuInfo) -> DesignSpace:
    """The design space of a loop nest on a GPU, with the configurations to measure first.

    Args:
        nest: The loop nest of the operator.
        info: The description of the GPU.
    """
    features_block = FeatureBlock(
        names=NAMES, compute=lambda values: features(nest, info, values), groups=GROUPS
    )
    return with_guesses(
        _knobs(nest),
        _constraints(nest, info),
        features_block,
        lambda values: guessed_cost(nest, info, values),
        [axis.knob for axis in nest.outputs],
    )


def with_guesses(
    knobs: Sequence[Knob],
    constraints: Sequence[Constraint],
    features: FeatureBlock,
    cost: Callable[[Values], NDArray[np.float64]],
    tiles: Sequence[str],
) -> DesignSpace:
    """The design space whose first guesses a cost chooses; see ``first_guesses``."""
    guesses = first_guesses(DesignSpace(knobs, constraints=constraints), cost, tiles)
    return DesignSpace(knobs, constraints=constraints, features=features, first_guesses=guesses)


def _knobs(nest: Nest) -> list[Knob]:
    """The paper's knobs by name (CHAMELEON, Table 1), and knobs for the width of loads."""
    knobs: list[Knob] = [
        Factorization(name=axis.knob, extent=axis.extent, parts=_TILE_PARTS)
        for axis in nest.outputs
    ]
    knobs += [
        Factorization(name=axis.knob, extent=axis.extent, parts=2)
        for axis in nest.reductions
        if not axis.whole
    ]
    knobs += UNROLLING
    for operand in nest.operands:
        widths = _widths(nest, operand)
        if len(widths) > 1:
            knobs.append(Choice(name=operand.knob, options=widths))
    return knobs


def _widths(nest: Nest, operand: Operand) -> tuple[int, ...]:
    """The numbers of elements that a thread may load at once for at least one tile."""
    extents = {axis.name: axis.extent for axis in (*nest.outputs, *nest.reductions)}
    extent = extents.get(operand.vector_axis or "", 1)
    widest = MAX_VECTOR_BYTES // FLOAT_BYTES
    return tuple(width for width in (1, 2, 4) if width <= widest and extent % width == 0)


def _constraints(nest: Nest, info: GpuInfo) -> list[Constraint]:
    """The constraints of legal configurations; cheap and selective constraints come first."""
    fewest = min(info.warp_size, nest.points)
    return [
        Constraint(
            reason=f"a block has more than {info.max_threads_per_block} threads, "
            f"or fewer than {fewest}",
            holds=lambda v: _within(nest.threads(v), fewest, info.max_threads_per_block),
        ),
        Constraint(
            reason=f"more than the {MAX_VIRTUAL_THREADS} virtual threads that TVM accepts",
            holds=lambda v: nest.virtual_threads(v) <= MAX_VIRTUAL_THREADS,
        ),
        Constraint(
            reason="a thread's sums and operands need more registers than there are",
            holds=lambda v: _fits_registers(nest, info, v),
        ),
        Constraint(
            reason="a block's operands do not fit "
            f"{info.max_shared_memory_per_block} bytes of shared memory",
            holds=lambda v: nest.shared_bytes(v, FLOAT_BYTES) <= info.max_shared_memory_per_block,
        ),
        Constraint(
            reason="a vector of neighbours would reach beyond the tile that is loaded",
            holds=lambda v: _whole_vectors(nest, v),
        ),
    ]


def _within(number: NDArray[np.int64], least: int, most: int) -> NDArray[np.bool_]:
    return np.asarray((number >= least) & (number <= most))


def _fits_registers(nest: Nest, info: GpuInfo, values: Values) -> NDArray[np.bool_]:
    """Whether there are enough registers for each thread and for all threads of a block."""
    needed = registers(nest, values)
    # Registers are given out to whole warps.
    threads = -(-nest.threads(values) // info.warp_size) * info.warp_size
    return np.asarray(
        (needed <= MAX_REGISTERS_PER_THREAD) & (needed * threads <= info.registers_per_block)
    )


def _whole_vectors(nest: Nest, values: Values) -> NDArray[np.bool_]:
    block = nest.block(values)
    whole = np.ones(len(values["auto_unroll_max_step"]), np.bool_)
    for operand in nest.operands:
        if operand.knob in values:
            whole &= block[operand.vector_axis or ""] % values[operand.knob] == 0
    return whole


def first_guesses(
    space: DesignSpace, cost: Callable[[Values], NDArray[np.float64]], tiles: Sequence[str]
) -> NDArray[np.int32]:
    """Choose configurations to measure first: those of a fixed sample with the lowest costs.

    The costs are estimates. No two chosen configurations have the same tiles.

    Args:
        space: The design space, without first guesses.
        cost: A function that returns the estimated costs of n configurations, shape (n,).
        tiles: Names of the knobs that make a tile.
    """
    # The seed depends only on the space, so that all processes draw the same sample.
    rng = np.random.default_rng(space.size % (1 << 32))
    drawn = space.sample(_DRAWN, rng)
    if not len(drawn):
        return drawn
    ranked = drawn[np.argsort(cost(space.values(drawn)), kind="stable")]
    columns = [space.index[name] for name in tiles]
    _, first = np.unique(ranked[:, columns], axis=0, return_index=True)
    return ranked[np.sort(first)[:GUESSES]]
