"""Memory that is needed at the same time does not overlap, and no constant is kept twice."""

import numpy as np
from chameleon_networks._c_runtime.pack import ALIGNMENT, aligned
from chameleon_networks._compile.sequence.calls import Call, CallSequence, Storage, Tensor
from chameleon_networks._compile.sequence.library import Lifetime, assign_offsets, plan_memory
from chameleon_networks._graph.strides import dense_strides
from hypothesis import given
from hypothesis import strategies as st

INTERVALS = st.builds(
    lambda size, first, length: Lifetime(size=size, first=first, last=first + length),
    st.integers(1, 1000),
    st.integers(0, 12),
    st.integers(0, 5),
)


@given(st.lists(INTERVALS, max_size=12))
def test_what_is_alive_together_lies_apart(intervals):
    offsets, size = assign_offsets(intervals)
    spans = [(o, o + i.size) for o, i in zip(offsets, intervals, strict=True)]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    for number, (i, (start, end)) in enumerate(zip(intervals, spans, strict=True)):
        assert end <= size
        for other, (begin, stop) in list(zip(intervals, spans, strict=True))[:number]:
            if i.first <= other.last and other.first <= i.last:
                assert end <= begin or stop <= start
    together = [
        sum(aligned(i.size) for i in intervals if i.first <= call <= i.last) for call in range(20)
    ]
    assert max(together) <= size <= sum(aligned(i.size) for i in intervals)


def test_a_chain_needs_two_tensors_at_a_time():
    sizes = [100, 4000, 50, 4000, 10]
    _, size = assign_offsets([Lifetime(size=s, first=n, last=n + 1) for n, s in enumerate(sizes)])
    assert size == aligned(4000) + aligned(100)


def _tensor(storage):
    shape = (storage.size // 4,)
    return Tensor(storage=storage, shape=shape, strides=dense_strides(shape), dtype="float32")


def test_outputs_are_computed_where_they_are_wanted():
    x, constant = Storage(size=8, input=0), Storage(size=8, constant=np.ones(2, np.float32))
    twin = Storage(size=8, constant=np.ones(2, np.float32))
    y, z = Storage(size=8), Storage(size=8)
    calls = (
        Call(kernel="f", reads=(_tensor(x), _tensor(constant)), writes=(_tensor(y),)),
        Call(kernel="f", reads=(_tensor(y), _tensor(twin)), writes=(_tensor(z),)),
    )
    outputs = (_tensor(z), _tensor(x), _tensor(z))
    plan = plan_memory(CallSequence(inputs=(_tensor(x),), calls=calls, outputs=outputs))
    assert dict(plan.output_storages) == {z: 0}
    assert tuple(plan.copies) == (1, 2), "an input, and the same again"
    assert set(plan.arena) == {y}
    assert plan.weights[constant] == plan.weights[twin], "the same numbers are kept once"
    assert len(plan.constants) == 1


@given(picked=st.lists(st.integers(0, 5), min_size=1, max_size=10), index=st.integers(0, 8191))
def test_constants_are_shared_where_all_of_their_bytes_are_the_same(picked, index):
    """Also those that differ in a single place, which a look at some bytes may miss."""
    several = [np.zeros(8192, np.float32) for _ in range(4)]
    several[1][index] = 1.0
    several[2][(index + 1) % 8192] = 1.0
    kinds = [*several, np.zeros(4096, np.float32), np.zeros(4096, np.float64)]
    storages = [Storage(size=kinds[kind].nbytes, constant=kinds[kind].copy()) for kind in picked]
    x, y = Storage(size=8, input=0), Storage(size=8)
    reads = (_tensor(x), *map(_tensor, storages))
    call = Call(kernel="f", reads=reads, writes=(_tensor(y),))
    plan = plan_memory(CallSequence(inputs=(_tensor(x),), calls=(call,), outputs=(_tensor(y),)))
    for storage, kind in zip(storages, picked, strict=True):
        assert plan.constants[plan.weights[storage]].tobytes() == kinds[kind].tobytes()
    assert len(plan.constants) == len({kinds[kind].tobytes() for kind in picked})
