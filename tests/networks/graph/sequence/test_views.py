"""Concatenations, slices and shuffles move nothing where they need not; numbers stay the same."""

import math

import numpy as np
import pytest
import tvm
from chameleon_networks._compile.sequence.view_candidates import (
    mark_view_candidates,
    match_shuffle,
    select_view_candidates,
)
from chameleon_networks._graph.relax_utils import relax
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marks import full

from ...modules import module_of  # noqa: TID252 - shared by folders
from .image_networks import conv, correct, values_of

op = relax.op


def _moves(network):
    """Kernels that do nothing but move data because of a concatenation, split or slice."""
    return [name for name in network.kernels if name.startswith(("concat", "split", "slice"))]


@pytest.mark.full
@pytest.mark.parametrize(("layout", "seed"), [("NCHW", None), ("NCHW", 0), ("NHWC", 1)])
def test_a_fire_module_concatenates_for_nothing(deliver, layout, seed):
    def build(emit, x):
        squeezed = emit(op.nn.relu(conv(emit, x, 8)))
        parts = [emit(op.nn.relu(conv(emit, squeezed, 24, size))) for size in (1, 3)]
        both = emit(op.concat(parts, axis=1))
        return conv(emit, emit(op.nn.max_pool2d(both, (2, 2), (2, 2))), 10)

    # Winograd's algorithms, which a seed may draw, need outputs without gaps.
    direct = {"layout": layout, "seed": seed, "algorithms": ("direct",)}
    network = correct(deliver, build, (1, 16, 12, 12), **direct)
    assert _moves(network) == []


@pytest.mark.parametrize(
    ("layout", "seed"), [("NHWC", None), full("NCHW", None), full("NHWC", 2), full("NCHW", 2)]
)
def test_branches_read_their_part_of_a_split(deliver, layout, seed):
    def build(emit, x):
        parts = emit(op.split(conv(emit, x, 48), [16, 20], axis=1))
        left, thin, right = (emit(parts[number]) for number in range(3))
        pooled = emit(op.nn.avg_pool2d(thin, (3, 3), (1, 1), (1, 1)))
        return emit(op.concat([conv(emit, left, 16, 3), pooled, conv(emit, right, 8)], axis=1))

    network = correct(deliver, build, (1, 8, 10, 10), layout=layout, seed=seed)
    # A template that reads columns and channels as one axis needs them without gaps.
    assert [name for name in _moves(network) if seed is None or "concat" in name] == []


@pytest.mark.parametrize("layout", ["NHWC", full("NCHW")])
def test_what_cannot_be_a_view_is_copied_alone(deliver, layout):
    def build(emit, x):
        first, second = conv(emit, x, 6), conv(emit, x, 5)
        twice = emit(op.concat([first, second, first], axis=1))
        again = emit(op.concat([conv(emit, twice, 4), second], axis=1))
        return conv(emit, twice, 3), conv(emit, again, 3)

    network = correct(deliver, build, (1, 8, 6, 6), layout=layout)
    assert len(_moves(network)) == 2, "the second of the twins, and what two results hold"


def test_dense_blocks_share_one_tensor(deliver):
    def build(emit, x):
        grown = conv(emit, x, 8)
        for _ in range(3):
            grown = emit(op.concat([grown, conv(emit, grown, 4, 3)], axis=1))
        return conv(emit, grown, 5)

    network = correct(deliver, build, (1, 8, 6, 6), layout="NHWC")
    assert _moves(network) == [], "a result that is a part of another lies in that"


@pytest.mark.parametrize("layout", ["NHWC", full("NCHW")])
def test_results_and_inputs_of_the_network_stay_the_callers(deliver, layout):
    def build(emit, x):
        first = conv(emit, x, 4)
        both = emit(op.concat([first, x, conv(emit, x, 4)], axis=1))
        halves = emit(op.split(conv(emit, both, 6), 2, axis=1))
        return first, both, emit(halves[0]), conv(emit, emit(halves[1]), 3)

    correct(deliver, build, (2, 4, 5, 5), layout=layout)


def test_slices_are_read_where_they_are(deliver):
    def build(emit, x):
        whole = conv(emit, x, 8)
        inner = emit(op.strided_slice(whole, [2, 3], [1, -6], [7, -1]))
        every = emit(op.strided_slice(whole, [1], [2], [6]))
        skipped = emit(op.strided_slice(whole, [2], [0], [8], [2]))
        return tuple(conv(emit, part, 3) for part in (inner, every, skipped))

    network = correct(deliver, build, (2, 4, 8, 8))
    assert _moves(network) == []


@st.composite
def _programs(draw):
    earlier, sizes = st.integers(0, 4), st.integers
    step = st.one_of(
        st.tuples(st.just("conv"), earlier, sizes(2, 12), st.sampled_from([1, 1, 3])),
        st.tuples(st.just("depthwise"), earlier),
        st.tuples(st.just("relu"), earlier),
        st.tuples(st.just("pool"), earlier),
        st.tuples(st.just("unit"), earlier),
        st.tuples(st.just("concat"), st.lists(earlier, min_size=2, max_size=3)),
        st.tuples(st.just("split"), earlier, sizes(1, 7)),
        st.tuples(st.just("slice"), earlier, sizes(0, 3), sizes(1, 5)),
        st.tuples(st.just("shuffle"), earlier, sizes(2, 4)),
        st.tuples(st.just("shuffle"), earlier, sizes(2, 4)),
    )
    return draw(st.lists(step, min_size=4, max_size=12))


@pytest.mark.full
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    _programs(),
    st.sampled_from(["NHWC", "NHWC", "NCHW"]),
    st.sampled_from([{"guesses": True}, {"guesses": True}, {"seed": 0}, {}]),
    st.booleans(),
)
def test_random_networks_compute_the_same(deliver, program, layout, kernels, results):
    shape = (1 + len(program) % 2, 4, 5, 6)

    def build(emit, x):
        values = values_of(emit, program, [x, conv(emit, x, 12)])
        if results:
            return tuple(values[-3:])
        return (*(conv(emit, value, 3) for value in values[-3:]), values[-1])

    network = correct(deliver, build, shape, layout=layout, **kernels)
    assert network.compiled.virtual_machine is None


# -- shuffles --------------------------------------------------------------------------------------


def _shuffle(build, shape):
    """What the last reshape or permutation shuffles."""
    bindings = module_of(build, (shape, "float32"))["main"].body.blocks[0].bindings
    values = {binding.var: binding.value for binding in bindings}
    last = [b.value for b in bindings if isinstance(b.value, relax.Call)][-1]
    return match_shuffle(last, values)


@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=4),
    st.lists(st.integers(1, 3), max_size=2),
    st.lists(st.integers(1, 3), max_size=2),
    st.data(),
)
def test_its_table_says_where_each_index_was(digits, before, after, data):
    order = data.draw(st.permutations(range(len(digits))))
    whole = (*before, math.prod(digits), *after)
    axis = len(before)
    axes = [*range(axis), *(axis + shift for shift in order)]
    axes += range(len(axes), len(axes) + len(after))

    def build(emit, x):
        apart = emit(op.reshape(x, (*before, *digits, *after)))
        return emit(op.reshape(emit(op.permute_dims(apart, axes)), whole))

    array = np.arange(math.prod(whole)).reshape(whole)
    wanted = array.reshape(*before, *digits, *after).transpose(axes).reshape(whole)
    shuffle = _shuffle(build, whole)
    if shuffle is None:
        np.testing.assert_array_equal(wanted, array)
    else:
        assert sorted(shuffle.table) == list(range(whole[shuffle.axis]))
        np.testing.assert_array_equal(np.take(array, shuffle.table, shuffle.axis), wanted)


def test_several_in_a_row_are_one():
    def build(emit, x):
        for groups in (2, 3):
            apart = emit(op.reshape(x, (5, groups, 12 // groups)))
            x = emit(op.reshape(emit(op.permute_dims(apart, [0, 2, 1])), (5, 12)))
        return x

    shuffle = _shuffle(build, (5, 12))
    once = np.arange(12).reshape(2, 6).T.reshape(-1)
    assert shuffle.table == tuple(once.reshape(3, 4).T.reshape(-1))


def test_what_moves_two_axes_is_none():
    def build(emit, x):
        apart = emit(op.reshape(x, (2, 2, 2, 3)))
        return emit(op.reshape(emit(op.permute_dims(apart, [1, 0, 3, 2])), (4, 6)))

    assert _shuffle(build, (4, 6)) is None
    assert _shuffle(lambda emit, x: emit(op.permute_dims(x, [1, 0])), (4, 4)) is None
    assert _shuffle(lambda emit, x: emit(op.reshape(x, (6, 4))), (4, 6)) is None


def test_marks_after_many_operators():
    def build(emit, x):
        first = x
        for _ in range(400):
            x = emit(op.add(x, x))
        return emit(op.concat([x, first], 1))

    module = mark_view_candidates(module_of(build, ((2, 3), "float32")))
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    marked = select_view_candidates(tvm.transform.Sequential(passes)(module))
    assert all("chameleon.concat" not in (f.attrs or {}) for f in marked.functions.values())
