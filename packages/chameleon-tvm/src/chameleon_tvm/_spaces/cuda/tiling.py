"""The design space of CUDA templates: knobs, constraints, and estimates that need no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Factorization, Knob, Values
from numpy.typing import NDArray

from chameleon_tvm._device.gpus import MAX_REGISTERS_PER_THREAD, MAX_VECTOR_BYTES, GpuInfo
from chameleon_tvm._spaces.cuda.nest import Nest, Operand

FLOAT_BYTES = 4
ADDRESS_REGISTERS = 24
"""Registers of a thread that hold indices and addresses, as ptxas reports them for small tiles."""
SECTOR_BYTES = 32
"""Number of bytes that a multiprocessor reads from memory at once, at least."""
SHARED_CYCLES = 4.0
"""Multiply-adds in the time in which shared memory delivers one word to every lane of a warp: 128
units against 32 banks."""
MEMORY_FLOP = 12.0
"""Floating-point operations in the time in which memory delivers a byte: an A100 does 19.5 TFLOP/s
and reads 1.6 TB/s (NVIDIA's data sheet)."""
STEP_CYCLES = 80.0
"""Multiply-adds that a warp could do in the time in which it waits at the two barriers of a
step."""
ENOUGH_WARPS = 16.0
"""Number of resident warps that keep a multiprocessor's units busy, with sixteen sums per
thread."""
ENOUGH_BLOCKS = 128.0
"""Number of blocks that gives each multiprocessor of a large GPU a block: an A100 has 108
multiprocessors, an H100 132."""

Numbers = NDArray[np.float64]


def registers(nest: Nest, values: Values) -> NDArray[np.int64]:
    """Estimate how many registers a thread needs for sums, operands and addresses, shape (n,)."""
    needed = nest.sums(values) + nest.operands_per_thread(values) + ADDRESS_REGISTERS
    return np.asarray(needed)


@attrs.frozen(kw_only=True)
class Estimates:
    """Estimates of kernels for n configurations without building them; each has shape (n,).

    Attributes:
        virtual_threads: Number of virtual threads that each thread runs.
        steps: Number of times that a block copies its operands to shared memory.
        per_step: Number of products that are added to each sum in one step.
        resident_warps: Number of warps that fit a multiprocessor.
        shared_per_product: Words that a thread reads from shared memory per multiply-add.
        bytes_per_flop: Bytes that all blocks together copy, per floating-point operation.
        sector_use: Share of the bytes read from memory that the blocks need.
        fetch_use: Share of the threads that load something while a block copies its operands.
        unrolled: Share of the inner loops' iterations that unrolling removes.
    """

    threads: Numbers
    blocks: Numbers
    virtual_threads: Numbers
    sums: Numbers
    registers: Numbers
    shared_bytes: Numbers
    steps: Numbers
    per_step: Numbers
    resident_warps: Numbers
    shared_per_product: Numbers
    bytes_per_flop: Numbers
    sector_use: Numbers
    fetch_use: Numbers
    unrolled: Numbers


LOG_FEATURES = ("threads", "blocks", "virtual_threads", "sums", "shared_bytes", "steps", "per_step")
"""Estimates whose features are logarithms."""
NAMES = tuple(field.name for field in attrs.fields(Estimates))

GROUPS = (
    ("launch", ("threads", "blocks", "virtual_threads", "resident_warps")),
    ("sums of a thread", ("sums", "registers", "shared_per_product", "unrolled")),
    ("shared memory", ("shared_bytes", "steps", "per_step")),
    ("memory", ("bytes_per_flop", "sector_use", "fetch_use")),
)
"""For each loop or buffer, the features that describe it."""


def estimate(nest: Nest, info: GpuInfo, values: Values) -> Estimates:
    """The estimates of n configurations."""
    counts = (nest.threads, nest.blocks, nest.sums, nest.steps, nest.products_per_step)
    threads, blocks, sums, steps, per_step = (count(values).astype(np.float64) for count in counts)
    shared = nest.shared_bytes(values, FLOAT_BYTES).astype(np.float64)
    needed = registers(nest, values).astype(np.float64)
    fetched = sum(nest.shared_elements(values).values())
    return Estimates(
        threads=threads,
        blocks=blocks,
        virtual_threads=nest.virtual_threads(values).astype(np.float64),
        sums=sums,
        registers=needed,
        shared_bytes=shared,
        steps=steps,
        per_step=per_step,
        resident_warps=_resident_warps(info, threads, shared, needed),
        shared_per_product=nest.operands_per_thread(values) / sums,
        bytes_per_flop=blocks * steps * np.asarray(fetched) * FLOAT_BYTES / nest.flop,
        sector_use=_sector_use(nest, values),
        fetch_use=_fetch_use(nest, values, threads),
        unrolled=np.minimum(1.0, values["auto_unroll_max_step"] / (per_step * sums)),
    )


def _resident_warps(info: GpuInfo, threads: Numbers, shared: Numbers, needed: Numbers) -> Numbers:
    warps = np.ceil(threads / info.warp_size)
    per_thread = np.minimum(needed, MAX_REGISTERS_PER_THREAD)
    by_registers = info.registers_per_block // (warps * info.warp_size * per_thread)
    by_threads = info.threads_per_multiprocessor // (warps * info.warp_size)
    by_shared = info.shared_per_multiprocessor // np.maximum(shared, 1.0)
    most = np.minimum(np.minimum(by_registers, by_threads), by_shared)
    return np.asarray(np.clip(most, 1, info.blocks_per_multiprocessor) * warps)


def _sector_use(nest: Nest, values: Values) -> Numbers:
    block = nest.block_extents(values)
    read, needed = np.zeros(()), np.zeros(())
    for operand in nest.operands:
        elements = np.asarray(operand.elements(block), np.float64)
        run = operand.row_length(block) * FLOAT_BYTES
        needed = needed + elements
        read = read + elements * np.ceil(run / SECTOR_BYTES) * SECTOR_BYTES / run
    return needed / read


def _fetch_use(nest: Nest, values: Values, threads: Numbers) -> Numbers:
    useful, issued = np.zeros(()), np.zeros(())
    for operand, elements in zip(nest.operands, nest.shared_elements(values).values(), strict=True):
        loads = elements / nest.vector(values, operand)
        useful = useful + loads
        issued = issued + np.ceil(loads / threads) * threads
    return useful / issued


def features(nest: Nest, info: GpuInfo, values: Values) -> Numbers:
    """Features for cost models, magnitudes as logarithms; shape (n, len(NAMES))."""
    e = estimate(nest, info, values)
    columns: list[Any] = [
        np.log2(1 + getattr(e, name)) if name in LOG_FEATURES else getattr(e, name)
        for name in NAMES
    ]
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.float64)


def guessed_cost(nest: Nest, info: GpuInfo, values: Values) -> Numbers:
    """A rough relative cost for ordering first guesses, lower is better; shape (n,).

    By the roofline model, the longer of compute and memory time counts, over the busy share.
    """
    e = estimate(nest, info, values)
    loop_overhead = 1.0 + 0.3 * (1.0 - e.unrolled)
    waiting = 1.0 + STEP_CYCLES / (e.per_step * e.sums)
    vectors = np.mean(
        [np.broadcast_to(nest.vector(values, o), e.sums.shape) for o in nest.operands], axis=0
    )
    fetch = e.bytes_per_flop * (1.0 + 1.0 / vectors) / e.fetch_use
    compute = np.maximum(1.0, SHARED_CYCLES * e.shared_per_product / 2.0) * loop_overhead * waiting
    memory = MEMORY_FLOP * (e.bytes_per_flop / e.sector_use + 0.1 * fetch)
    busy = np.minimum(1.0, e.resident_warps * np.sqrt(e.sums) / (ENOUGH_WARPS * 4.0))
    spread = np.minimum(1.0, e.blocks / ENOUGH_BLOCKS)
    full = e.threads / (np.ceil(e.threads / info.warp_size) * info.warp_size)
    return np.asarray((np.maximum(compute, memory) + 0.1 * memory) / (busy * spread * full))


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
_SAMPLES = 8192
_TILE_PARTS = 4


def design_space(nest: Nest, info: GpuInfo) -> DesignSpace:
    """The design space of a loop nest on a GPU, with the configurations to measure first."""
    features_block = DesignSpace.FeatureBlock(
        names=NAMES, compute=lambda values: features(nest, info, values), groups=GROUPS
    )
    return space_with_first_guesses(
        _knobs(nest),
        _constraints(nest, info),
        features_block,
        lambda values: guessed_cost(nest, info, values),
        [axis.knob for axis in nest.outputs],
    )


def space_with_first_guesses(
    knobs: Sequence[Knob],
    constraints: Sequence[Constraint],
    features: DesignSpace.FeatureBlock,
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
        if not axis.untiled
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
    least = min(info.warp_size, nest.points)
    return [
        Constraint(
            reason=f"a block has more than {info.max_threads_per_block} threads, "
            f"or fewer than {least}",
            holds=lambda v: _within(nest.threads(v), least, info.max_threads_per_block),
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
    block = nest.block_extents(values)
    full = np.ones(len(values["auto_unroll_max_step"]), np.bool_)
    for operand in nest.operands:
        if operand.knob in values:
            full &= block[operand.vector_axis or ""] % values[operand.knob] == 0
    return full


def first_guesses(
    space: DesignSpace, cost: Callable[[Values], NDArray[np.float64]], tiles: Sequence[str]
) -> NDArray[np.int32]:
    """The configurations of a fixed sample with the lowest costs, of different tiles."""
    # The seed depends only on the space, so that all processes draw the same sample.
    rng = np.random.default_rng(space.size % (1 << 32))
    sample = space.sample(_SAMPLES, rng)
    if not len(sample):
        return sample
    ranked = sample[np.argsort(cost(space.values(sample)), kind="stable")]
    columns = [space.index[name] for name in tiles]
    _, first = np.unique(ranked[:, columns], axis=0, return_index=True)
    return ranked[np.sort(first)[:GUESSES]]
