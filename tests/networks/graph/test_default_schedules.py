"""Moves that are not tuned: rows with gaps and channel shuffles are left to LLVM's vectors."""

import numpy as np
import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._compile.default_schedules import apply_default_schedules
from chameleon_networks._compile.sequence.buffer_specialization import BufferLayout, specialize
from chameleon_tvm._building.lowering import compile_function
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._quick_tvm import te, tirx, tvm
from chameleon_tvm._spaces.loops.lowering import loops_of
from computing import NATIVE
from tvm_ffi.structural import structural_walk

SHAPE = (24, 12, 16)
TARGET = TVMTargets(NoOptions()).resolve("llvm -mcpu=haswell -num-cores=2")


def _copy():
    source = te.placeholder(SHAPE, name="source")
    return te.create_prim_func([source, te.compute(SHAPE, lambda i, j, c: source[i, j, c])])


def _shuffle():
    source = te.placeholder(SHAPE, name="source")
    return te.create_prim_func(
        [source, te.compute(SHAPE, lambda i, j, c: source[i, j, c % 2 * 8 + c // 2])]
    )


def _loops(function):
    loops = []
    structural_walk(function, (tirx.For, loops.append))
    return sorted(tirx.ForKind(loop.kind).name for loop in loops)


def _scheduled(function):
    scheduled = apply_default_schedules(tvm.IRModule({"main": function}), TARGET)["main"]
    return loops_of(scheduled.with_attr("global_symbol", "main"))


def _run(function, source):
    """What a function makes of an array; its output lies where TVM expects it, NumPy's may not."""
    out = tvm.runtime.tensor(np.zeros(SHAPE, np.float32))
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        compile_function(function, tvm_target(NATIVE), plain_loops=True)["main"](source, out)
    return out.numpy()


def test_what_lies_together_is_one_vectorised_loop():
    """As long as it is worth it in one thread."""
    assert _loops(_scheduled(_copy())) == ["SERIAL"]
    source = te.placeholder((64, 512), name="source")
    large = te.create_prim_func([source, te.compute((64, 512), lambda i, j: source[i, j])])
    assert _loops(_scheduled(large)) == ["PARALLEL", "SERIAL"]


@pytest.mark.parametrize("gap", [4, 16])
def test_rows_with_gaps_are_loops(gap):
    strides = (12 * (16 + gap), 16 + gap, 1)
    function = specialize(_copy(), [BufferLayout(strides=strides, alignment=16), BufferLayout()])
    scheduled = _scheduled(function)
    assert _loops(scheduled) == ["SERIAL", "SERIAL"]
    whole = np.random.default_rng(0).standard_normal((24, 12, 16 + gap)).astype(np.float32)
    np.testing.assert_array_equal(_run(scheduled, whole[:, :, :16]), whole[:, :, :16])


def test_a_shuffle_takes_its_sources_by_turns():
    scheduled = _scheduled(_shuffle())
    assert _loops(scheduled) == ["SERIAL", "SERIAL"]
    source = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    out = _run(scheduled, tvm.runtime.tensor(source))
    halves = source.reshape(24, 12, 2, 8).transpose(0, 1, 3, 2).reshape(SHAPE)
    np.testing.assert_array_equal(out, halves)


def test_parts_that_are_joined_in_another_order_are_read_where_they_are():
    shape = (8, 64)
    source, other = (te.placeholder(shape, name=name) for name in ("source", "other"))
    turned = te.compute(shape, lambda i, j: source[7 - i, j])
    first = te.compute((8, 61), lambda i, j: turned[i, j + 3])
    last = te.compute((8, 3), lambda i, j: turned[i, j])
    joined = te.compute(shape, lambda i, j: tirx.if_then_else(j < 61, first[i, j], last[i, j - 61]))
    result = te.compute(shape, lambda i, j: joined[i, j] + other[i, j])
    function = te.create_prim_func([source, other, result])
    scheduled = apply_default_schedules(tvm.IRModule({"main": function}), TARGET)["main"]
    blocks = []
    structural_walk(scheduled, (tvm.s_tir.SBlock, blocks.append))
    assert [str(block.name_hint) for block in blocks if block.iter_vars] == ["compute_4"]
    x = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    out = tvm.runtime.tensor(np.zeros(shape, np.float32))
    compile_function(scheduled, tvm_target(NATIVE), plain_loops=False)["main"](*x, out)
    np.testing.assert_array_equal(out.numpy(), np.roll(x[0][::-1], -3, 1) + x[1])
