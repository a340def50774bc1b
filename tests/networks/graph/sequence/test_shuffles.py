"""A shuffle is a permutation of one axis, however a network writes it."""

import math

import numpy as np
import tvm
from chameleon_networks.compile.sequence.marks import shuffle_of, with_marks, with_useful_marks
from chameleon_networks.graph.relaxed import relax
from hypothesis import given
from hypothesis import strategies as st

from ...modules import module_of  # noqa: TID252 - shared by folders

op = relax.op


def _shuffle(build, shape):
    """What the last reshape or permutation shuffles."""
    bindings = module_of(build, (shape, "float32"))["main"].body.blocks[0].bindings
    values = {binding.var: binding.value for binding in bindings}
    last = [b.value for b in bindings if isinstance(b.value, relax.Call)][-1]
    return shuffle_of(last, values)


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

    module = with_marks(module_of(build, ((2, 3), "float32")))
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    marked = with_useful_marks(tvm.transform.Sequential(passes)(module))
    assert all("chameleon.concat" not in (f.attrs or {}) for f in marked.functions.values())
