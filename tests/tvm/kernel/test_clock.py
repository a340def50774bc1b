"""Clocks do their work on every core, with the instructions of the kernels that they time."""

import numpy as np
import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_system.api import AMX
from chameleon_tvm._building.clock import ClockKernel, clock_of, tile_clock, vector_clock
from chameleon_tvm._building.kernel import Program
from chameleon_tvm._building.lowering import lower_function
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._instructions.amx import AmxBfloat16, AmxInt8
from chameleon_tvm._instructions.emission import PERMISSIONS, permissions_of
from chameleon_tvm._instructions.selection import permissions_for
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm.api import DenseSpec

NATIVE = TVMTargets(NoOptions()).resolve("native")
SAPPHIRE = TVMTargets(NoOptions()).resolve(
    "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids -num-cores=2"
)


def test_the_work_of_the_clock_is_done_in_every_lane_of_every_core():
    clock = vector_clock(NATIVE, cycles=2000)
    kernel = ClockKernel(clock, NATIVE)
    (sums,) = kernel.outputs()
    np.testing.assert_allclose(sums, 2.0, rtol=1e-6)  # where x = x / 2 + 1 ends
    assert clock.operations >= 2.0 * sums.size
    name, rate = kernel.clock()
    assert (name, rate > 0.0) == ("multiply-add", True)


@pytest.mark.parametrize("tile", [AmxBfloat16(), AmxInt8()], ids=lambda tile: tile.name)
def test_a_clock_of_tiles_multiplies_tiles(tile):
    clock = tile_clock(SAPPHIRE, tile)
    assert clock.name == tile.name
    assert permissions_of(clock.program.function) == {AMX}
    library = lower_function(clock.program.function, tvm_target(SAPPHIRE), plain_loops=True)
    assembly = library.mod.inspect_source("asm")
    unrolled = assembly.count(f"\t{tile.name}\t")
    assert unrolled > 0
    assert unrolled % 4 == 0
    products = clock.operations / (2 * 2 * tile.rows * tile.columns * tile.depth)
    assert products % 4 == 0
    # Each of the two cores adds 2 * 16 products in a cycle, and a product of tiles takes 16 cycles.
    assert clock.comparable == 2 * 2 * (2 * 16) * 16 * products


def dense_program():

    operator = operator_of(DenseSpec(input=[8, 16], units=4).task("t", NATIVE))
    return Program(function=operator.prim_func(), inputs=[])


def test_kernels_without_tiles_have_a_clock_of_multiply_adds():
    assert clock_of(dense_program(), NATIVE)().clock()[0] == "multiply-add"


@pytest.mark.skipif(AMX not in permissions_for(NATIVE), reason="the CPU has no tiles")
def test_kernels_with_tiles_have_a_clock_of_tiles():
    function = dense_program().function.with_attr(PERMISSIONS, [AMX])
    make_clock = clock_of(Program(function=function, inputs=[]), NATIVE)
    name, rate = make_clock().clock()
    assert name.startswith("tdp")
    assert rate > 0.0
    assert make_clock() is make_clock()


def test_another_machine_s_kernels_have_no_clock():
    other = TVMTargets(NoOptions()).resolve("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    assert clock_of(dense_program(), other) is None
