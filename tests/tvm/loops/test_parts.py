"""Element-wise functions are dealt to threads in parts of which LLVM makes vectors."""

import itertools
import math
import operator

import numpy as np
import pytest
from chameleon_tvm._quick_tvm import te, tirx
from chameleon_tvm._spaces.loops.lowering import loops_of
from chameleon_tvm._spaces.loops.schedule import (
    MAX_PARTS,
    LoopPlan,
    plan_parts,
    scheduled,
)
from chameleon_tvm._spaces.loops.trees import find_nodes, uses
from computing import assembly_of, ran, resolved
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

AVX2 = resolved("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=2")
RNG = np.random.default_rng(0)
EXTENTS = st.sampled_from([1, 2, 3, 5, 7, 8, 12, 16, 24, 28, 33, 50, 56, 57, 64])
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).map(tuple)


def _added(shape, other):
    """``relu(x + y)`` with ``y`` broadcast to the shape of ``x``."""
    x, y = (te.placeholder(row, name=name) for row, name in ((shape, "x"), (other, "y")))

    def element(*at):
        places = at[len(at) - len(other) :]
        theirs = [
            0 if extent == 1 and width != 1 else start
            for start, extent, width in zip(
                places, other, shape[len(at) - len(other) :], strict=True
            )
        ]
        return tirx.max(x(*at) + y(*theirs), tirx.const(0, "float32"))

    return te.create_prim_func([x, y, te.compute(shape, element, name="out")])


def _innermost(function):
    loops = find_nodes(function.body, tirx.For)
    return [loop for loop in loops if isinstance(loop.body, tirx.BufferStore)]


def _divisions(function):
    """Divisions and remainders by which places in memory are found within innermost loops."""
    return [
        division
        for loop in _innermost(function)
        for division in find_nodes(loop.body, (tirx.FloorDiv, tirx.FloorMod))
        if uses(division, loop.loop_var)
    ]


def _broadcasts(shape):
    flags = st.tuples(*(st.booleans() for _ in shape))
    first = flags.map(lambda keep: tuple(e if k else 1 for e, k in zip(shape, keep, strict=True)))
    return st.one_of(st.just(shape), st.just(shape[-1:]), st.just(()), first)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), shape=SHAPES)
def test_innermost_loops_have_no_divisions(data, shape):
    other = data.draw(_broadcasts(shape), label="other")
    # A broadcast along a last axis of one element has no row: one loop goes over all elements.
    assume(shape[-1] > 1 or math.prod(other) in {1, math.prod(shape)})
    function = loops_of(scheduled(_added(shape, other), LoopPlan(threads=True), 8))
    assert not _divisions(function)
    if math.prod(shape) > 20_000:
        return  # What follows is about the rest of the last vectors, which small ones have as well.
    x, y = (RNG.standard_normal(row).astype(np.float32) for row in (shape, other))
    np.testing.assert_array_equal(ran(function, [x, y], shape), np.maximum(x + y, 0))


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((1, 56, 56, 64), (1, 56, 56, 64)),
        ((1, 56, 56, 64), (64,)),
        ((1, 96, 28, 28), ()),
        ((1, 96, 28, 28), (1, 96, 1, 1)),
        ((2, 50, 50, 24), (2, 50, 50, 24)),
        ((1, 57, 57, 33), (1, 57, 57, 33)),
        ((1, 197, 192), (1, 197, 192)),
        ((1, 257, 56, 199), (1, 257, 56, 199)),
    ],
)
def test_their_code_is_vectors(shape, other):
    """As explicit ones, or as LLVM makes them of a loop in one piece."""
    function = loops_of(scheduled(_added(shape, other), LoopPlan(), 8))
    code = assembly_of(function, AVX2).splitlines()
    assert any("vmaxps" in line and "ymm" in line for line in code)


@given(extents=st.lists(st.integers(1, 60), min_size=1, max_size=4))
@example(extents=[1, 257, 56, 199])
@example(extents=[7, 1, 10])
def test_parts_cut_one_axis_evenly(extents):
    parts = plan_parts(extents)
    whole = list(itertools.accumulate(extents, operator.mul, initial=1))
    outer = max(size for size in whole if size <= parts)
    cut = sum(size <= parts for size in whole) - 1  # axes of extent 1 are not cut
    assert outer == parts or extents[cut] % (parts // outer) == 0 == parts % outer


def test_parts_are_many_and_long():
    assert plan_parts([1, 64, 56, 56]) == MAX_PARTS
    assert plan_parts([1, 56, 56, 64]) == 56
    assert plan_parts([1, 257, 56, 199]) == 257
    assert plan_parts([2, 197, 5]) == 2


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_is_in_eight_bits_is_read_as_one_piece(dtype):
    shape = (1, 56, 56, 64)
    source = te.placeholder(shape, dtype=dtype, name="source")
    out = te.compute(shape, lambda *at: source(*at).astype("float32") * 0.5, name="out")
    function = loops_of(scheduled(te.create_prim_func([source, out]), LoopPlan(), 8))
    assert _innermost(function)
    assert not _divisions(function)
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, shape).astype(dtype)
    np.testing.assert_array_equal(ran(function, [x], shape), x * np.float32(0.5))
