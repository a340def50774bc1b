"""Kernels take strides where no vector reaches over a gap, tables where none goes along an axis."""

import pytest
from chameleon_networks._compile.network_pipeline import PLAIN_LOOPS
from chameleon_networks._compile.sequence.buffer_accesses import (
    count_gathered_indices,
    gather_axis,
    supports_strides,
)
from chameleon_tvm import _emit as emit
from chameleon_tvm._quick_tvm import te, tirx

ROWS, WIDTH = 4, 8
GAPS = (2 * WIDTH, 1)


def _copying(lanes, position):
    """Copies with vectors from where ``place(row, vector)`` says."""
    source, target = emit.buffer("source", (ROWS, WIDTH)), emit.buffer("target", (ROWS, WIDTH))

    def body(row):
        def copied(number):
            vector = emit.load(source, position(row, number), lanes)
            return emit.store(target, [row, number * lanes], vector, lanes)

        return emit.loop("number", WIDTH // lanes, copied)

    return emit.function([source, target], emit.parallel("row", ROWS, body))


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_vectors_within_rows_are_fine(lanes):
    function = _copying(lanes, lambda row, number: [row, number * lanes])
    assert supports_strides(function, 0, GAPS)
    assert supports_strides(function, 1, GAPS)


def test_vectors_past_the_end_of_a_row_are_not():
    function = _copying(4, lambda row, number: [row, number * 4 + 1])
    assert not supports_strides(function, 0, GAPS)
    assert supports_strides(function, 1, GAPS)


@pytest.mark.parametrize(("lanes", "fine"), [(2 * WIDTH, True), (3 * WIDTH, False)])
def test_vectors_over_rows_are_fine_where_rows_follow_each_other(lanes, fine):
    source, target = emit.buffer("source", (2, 2, WIDTH)), emit.buffer("target", (2, 4 * WIDTH))

    def body(image):
        return emit.store(target, [image, 0], emit.load(source, [image, 0, 0], lanes), lanes)

    function = emit.function([source, target], emit.parallel("image", 2, body))
    assert supports_strides(function, 0, (5 * WIDTH, WIDTH, 1)) == fine
    assert not supports_strides(function, 0, (4 * WIDTH, 2 * WIDTH, 1))


def test_other_shapes_have_to_exist_there():
    function = _copying(4, lambda row, number: [row, number * 4])
    assert supports_strides(emit.with_shapes(function, {"source": (ROWS * WIDTH,)}), 0, (1,))
    split = emit.with_shapes(function, {"source": (ROWS // 2, 2 * WIDTH)})
    assert not supports_strides(split, 0, (WIDTH * 3, 1)), "every second row follows the one before"


def test_whoever_has_the_address_is_not_trusted():
    a = te.placeholder((ROWS, WIDTH), name="a")
    result = te.extern(
        a.shape,
        [a],
        lambda ins, outs: tirx.call_packed("some.function", ins[0], outs[0]),
        dtype="float32",
    )
    function = te.create_prim_func([a, result])
    assert not supports_strides(function, 0, GAPS)
    assert not supports_strides(function, 1, GAPS)


def test_blocks_have_no_vectors_yet():
    a = te.placeholder((ROWS, WIDTH), name="a")
    result = te.compute(a.shape, lambda i, j: a[i, j] + 1.0)
    assert supports_strides(te.create_prim_func([a, result]), 0, GAPS)


SHAPE = (ROWS, WIDTH)


@pytest.mark.parametrize(("lanes", "axis"), [(1, 1), (4, None)])
def test_what_is_read_one_by_one_may_be_looked_up(lanes, axis):
    function = _copying(lanes, lambda row, number: [row, number * lanes]).with_attr(PLAIN_LOOPS, 1)
    assert gather_axis(function, 0, SHAPE, 1) == axis
    assert gather_axis(function, 0, SHAPE, 0) == 0
    inner = emit.with_shapes(function, {"source": (2, ROWS // 2, WIDTH)}).with_attr(PLAIN_LOOPS, 1)
    assert gather_axis(inner, 0, SHAPE, 1) == (None if axis is None else 2)
    assert gather_axis(inner, 0, SHAPE, 0) is None, "rows are two axes there"


def test_an_index_past_the_end_of_its_axis_is_not_looked_up():
    function = _copying(1, lambda row, number: [row, number + 1]).with_attr(PLAIN_LOOPS, 1)
    assert gather_axis(function, 0, SHAPE, 1) is None
    assert gather_axis(function, 0, SHAPE, 0) == 0


def test_functions_that_are_no_loops_yet_look_nothing_up():
    function = _copying(1, lambda row, number: [row, number])
    assert gather_axis(function, 0, SHAPE, 1) is None


def test_loops_look_up_once_what_they_read_alike():
    source, target = emit.buffer("source", (3, WIDTH)), emit.buffer("target", (ROWS, WIDTH))

    def copied(row, number):
        value = sum(emit.load(source, [image, number]) for image in range(3))
        return emit.store(target, [row, number], value)

    def body(row):
        return emit.loop("number", WIDTH, lambda number: copied(row, number))

    function = emit.function([source, target], emit.parallel("row", ROWS, body))
    assert count_gathered_indices(function, 0, 1) == ROWS * WIDTH
    assert count_gathered_indices(function, 0, 0) == 3 * ROWS * WIDTH
