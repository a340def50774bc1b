"""Clocks of a CPU: known work in registers, on every thread, which shows the present speed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import attrs
import numpy as np

from chameleon_tvm import _emit as emit
from chameleon_tvm._building.kernel import Program, TVMKernel, device_kind
from chameleon_tvm._device.cpus.description import is_this_cpu
from chameleon_tvm._device.targets import target_info, tvm_target
from chameleon_tvm._instructions.emission import permissions_of, with_instructions
from chameleon_tvm._instructions.selection import instruction_of, package_records_of
from chameleon_tvm._instructions.tiles import DATA, SUMS, WEIGHTS, TileProduct

_CYCLES = 80_000
"""Cycles of one run. Starting the threads takes less than a tenth of this time."""

_REPEATS = 3
"""Number of runs, of which the fastest counts, because other programs may interrupt the others."""

_SIDES = 2
"""Tiles of data and of weights, whose products need as many tiles of sums as AMX has left."""


@attrs.frozen(kw_only=True)
class ClockProgram:
    """A program of known work.

    Attributes:
        name: Name of the instructions that do the work.
        program: The program.
        operations: Number of multiplications and additions of one run.
        comparable: Number of multiplications and additions of float32 in the widest vectors that
            take as long, if all instructions run at their full rate.
    """

    name: str
    program: Program
    operations: float
    comparable: float


def clock_of(program: Program, target: str) -> Callable[[], ClockKernel] | None:
    """A function that returns the clock of a program's instructions; None without such a clock.

    The first call compiles the clock. A process has at most one clock for each kind of instruction.

    Args:
        program: The program, which may use instructions for tiles.
        target: The canonical target of the program.
    """
    if device_kind(tvm_target(target)) != "cpu" or not is_this_cpu(target):
        return None
    permissions = permissions_of(program.function)
    return lambda: _clock(target, permissions)


@cache
def _clock(target: str, permissions: frozenset[str]) -> ClockKernel:
    instructions = map(instruction_of, package_records_of(target))
    tiles = (
        each
        for each in instructions
        if isinstance(each, TileProduct) and each.permission in permissions
    )
    tile = next(tiles, None)
    return ClockKernel(vector_clock(target) if tile is None else tile_clock(target, tile), target)


class ClockKernel(TVMKernel):
    """A clock that was compiled for this process's CPU."""

    def __init__(self, clock: ClockProgram, target: str) -> None:
        super().__init__(clock.program, target)
        self._clock_program = clock

    def clock(self) -> tuple[str, float]:
        return self._clock_program.name, self._clock_program.comparable / self._seconds()

    def operations_per_second(self) -> float:
        """The multiplications and additions per second of the clock's instructions at present."""
        return self._clock_program.operations / self._seconds()

    def _seconds(self) -> float:
        return min(self.repeats(1, _REPEATS))


def vector_clock(target: str, *, cycles: int = _CYCLES) -> ClockProgram:
    """A clock of float32 multiply-adds: independent chains of ``x = x * a + b`` in registers.

    Args:
        target: The canonical target, a CPU.
        cycles: About the number of cycles of one run.
    """
    info = target_info(target)
    cores, lanes, chains = info.cores, info.lanes("float32"), info.vector_registers - 4
    iterations = max(1, int(cycles * info.fma_per_cycle / chains))
    factors = emit.buffer("factors", (2, lanes))
    out = emit.buffer("out", (cores, chains, lanes))

    def core(number: emit.Expr) -> emit.Stmt:
        sums = emit.registers(chains, lanes)
        scale, offset = (emit.load(factors, [row, 0], lanes) for row in (0, 1))

        def step(_: emit.Expr) -> emit.Stmt:
            return emit.sequence(
                [emit.assign(acc, emit.read(acc) * scale + offset) for acc in sums]
            )

        return accumulation_loop(number, sums, emit.loop("i", iterations, step), out, lanes)

    operations = 2.0 * cores * chains * lanes * iterations
    values = np.stack([np.full(lanes, 0.5), np.ones(lanes)]).astype(np.float32)
    function = emit.function([factors, out], emit.parallel("core", cores, core))
    return ClockProgram(
        name="multiply-add",
        program=Program(function=function, inputs=[values], plain_loops=True),
        operations=operations,
        comparable=operations,
    )


def tile_clock(target: str, tile: TileProduct) -> ClockProgram:
    """A clock of products of tiles that stay in registers.

    Args:
        target: The canonical target, a CPU that has the instruction.
        tile: The instruction.
    """
    info, products = target_info(target), _SIDES * _SIDES
    cores = info.cores
    iterations = max(1, int(_CYCLES / (products * tile.cost)))
    cycles = iterations * products * tile.cost
    sums = [tile.register(number, SUMS) for number in range(products)]
    data = [tile.register(products + side, DATA) for side in range(_SIDES)]
    weights = [tile.register(products + _SIDES + side, WEIGHTS) for side in range(_SIDES)]
    sources = {
        holds: emit.buffer(holds, (first.rows * first.width,), dtype=tile.element(holds))
        for holds, first in ((DATA, data[0]), (WEIGHTS, weights[0]))
    }
    size = sums[0].rows * sums[0].width
    out = emit.buffer("out", (cores * products * size,), dtype=tile.sums)

    def core(number: emit.Expr) -> emit.Stmt:
        loads = [
            tile.load(register, sources[register.holds], 0, register.width)
            for register in (*data, *weights)
        ]
        step = emit.sequence(
            [
                tile.product(sums[_SIDES * row + column], data[row], weights[column])
                for row in range(_SIDES)
                for column in range(_SIDES)
            ]
        )
        stores = [
            tile.store(register, out, (number * products + index) * size, register.width)
            for index, register in enumerate(sums)
        ]
        clear = [tile.zero(register) for register in sums]
        body = [*clear, *loads, emit.loop("i", iterations, lambda _: step), *stores]
        return tile.around([*sums, *data, *weights], emit.sequence(body))

    function = emit.function([*sources.values(), out], emit.parallel("core", cores, core))
    inputs = [np.zeros(_extent(source), str(source.dtype)) for source in sources.values()]
    return ClockProgram(
        name=tile.name,
        program=Program(
            function=with_instructions(function, [tile]), inputs=inputs, plain_loops=True
        ),
        operations=2.0 * cores * products * iterations * tile.rows * tile.columns * tile.depth,
        comparable=2.0 * cores * info.lanes("float32") * info.fma_per_cycle * cycles,
    )


def _extent(buffer: emit.Buffer) -> int:
    return int(buffer.shape[0])


def accumulation_loop(
    number: emit.Expr, sums: tuple[emit.Buffer, ...], loop: emit.Stmt, out: emit.Buffer, lanes: int
) -> emit.Stmt:
    """A loop with its sums set to zero before and stored after, so that LLVM keeps the loop."""
    clear = [emit.assign(acc, emit.zero(lanes)) for acc in sums]
    stores = [
        emit.store(out, [number, index, 0], emit.read(acc), lanes) for index, acc in enumerate(sums)
    ]
    return emit.allocate(sums, emit.sequence([*clear, loop, *stores]))
