"""Estimates of the cost of CUDA templates' configurations, without building kernels."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from chameleon_core.space import Values
from numpy.typing import NDArray

from chameleon_tvm.device.gpus import MAX_REGISTERS_PER_THREAD, GpuInfo
from chameleon_tvm.spaces.cuda.nest import Nest

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
    """Estimate how many registers a thread needs for sums, operands and addresses, shape (n,).

    Args:
        nest: The loop nest of the operator.
        values: Knob values of n configurations.
    """
    needed = nest.sums(values) + nest.operands_of_a_thread(values) + ADDRESS_REGISTERS
    return np.asarray(needed)


@attrs.frozen(kw_only=True)
class Estimates:
    """Estimates of kernels for n configurations without building them; each has shape (n,).

    Attributes:
        threads: Number of threads of a block.
        blocks: Number of blocks of the whole launch.
        virtual_threads: Number of virtual threads that each thread runs.
        sums: Number of sums that a thread keeps.
        registers: Number of registers that a thread needs.
        shared_bytes: Bytes of shared memory of a block.
        steps: Number of times that a block stages its operands in shared memory.
        per_step: Number of products that are added to each sum in one step.
        resident_warps: Number of warps that fit a multiprocessor, given shared memory, registers
            and threads.
        shared_per_product: Words that a thread reads from shared memory per multiply-add.
        bytes_per_flop: Bytes that all blocks together stage, per floating-point operation.
        sector_use: Share of the bytes read from memory that the blocks need.
        fetch_use: Share of the threads that load something while a block stages its operands; some
            are idle in the last round of loads.
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


LOGARITHMIC = ("threads", "blocks", "virtual_threads", "sums", "shared_bytes", "steps", "per_step")
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
    counts = (nest.threads, nest.blocks, nest.sums, nest.steps, nest.per_step)
    threads, blocks, sums, steps, per_step = (count(values).astype(np.float64) for count in counts)
    shared = nest.shared_bytes(values, FLOAT_BYTES).astype(np.float64)
    needed = registers(nest, values).astype(np.float64)
    fetched = sum(nest.fetched(values).values())
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
        shared_per_product=nest.operands_of_a_thread(values) / sums,
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
    block = nest.block(values)
    used, asked = np.zeros(()), np.zeros(())
    for operand in nest.operands:
        elements = np.asarray(operand.elements(block), np.float64)
        run = operand.run(block) * FLOAT_BYTES
        asked = asked + elements
        used = used + elements * np.ceil(run / SECTOR_BYTES) * SECTOR_BYTES / run
    return asked / used


def _fetch_use(nest: Nest, values: Values, threads: Numbers) -> Numbers:
    useful, issued = np.zeros(()), np.zeros(())
    for operand, elements in zip(nest.operands, nest.fetched(values).values(), strict=True):
        loads = elements / nest.vector(values, operand)
        useful = useful + loads
        issued = issued + np.ceil(loads / threads) * threads
    return useful / issued


def features(nest: Nest, info: GpuInfo, values: Values) -> Numbers:
    """Features for cost models, magnitudes as logarithms; shape (n, len(NAMES))."""
    e = estimate(nest, info, values)
    columns: list[Any] = [
        np.log2(1 + getattr(e, name)) if name in LOGARITHMIC else getattr(e, name) for name in NAMES
    ]
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.float64)


def guessed_cost(nest: Nest, info: GpuInfo, values: Values) -> Numbers:
    """A rough relative cost for ordering first guesses, lower is better; shape (n,).

    The cost follows the roofline model. The longer of two times counts: that of multiply-adds with
    their reads of shared memory, or that of transfers from memory. This time is divided by the
    share of the GPU that is busy.

    Args:
        nest: The loop nest of the operator.
        info: The limits of the GPU.
        values: Knob values of n configurations.
    """
    e = estimate(nest, info, values)
    looped = 1.0 + 0.3 * (1.0 - e.unrolled)
    waiting = 1.0 + STEP_CYCLES / (e.per_step * e.sums)
    vectors = np.mean(
        [np.broadcast_to(nest.vector(values, o), e.sums.shape) for o in nest.operands], axis=0
    )
    fetch = e.bytes_per_flop * (1.0 + 1.0 / vectors) / e.fetch_use
    compute = np.maximum(1.0, SHARED_CYCLES * e.shared_per_product / 2.0) * looped * waiting
    memory = MEMORY_FLOP * (e.bytes_per_flop / e.sector_use + 0.1 * fetch)
    busy = np.minimum(1.0, e.resident_warps * np.sqrt(e.sums) / (ENOUGH_WARPS * 4.0))
    spread = np.minimum(1.0, e.blocks / ENOUGH_BLOCKS)
    full = e.threads / (np.ceil(e.threads / info.warp_size) * info.warp_size)
    return np.asarray((np.maximum(compute, memory) + 0.1 * memory) / (busy * spread * full))
