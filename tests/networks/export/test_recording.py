"""What is done to arrays, written down as JSON and done again to others."""

import json

import numpy as np
import pytest
from chameleon_networks._c_runtime.pack import replayed
from chameleon_networks._export.operators import NotRecordableError, Recording
from hypothesis import given
from hypothesis import strategies as st


def recorded(function, inputs):
    """A function as what its recording on some inputs does to others."""
    recording, arrays = Recording.of(inputs)
    number = recording.number_of(function(arrays))
    assert number is not None, "the result left the recording"
    fixed = [None] * len(inputs)
    for index in recording.fixed:
        fixed[index] = len(recording.constants)
        recording.constants.append(recording.inputs[index])
    packing = {"fixed": fixed, "steps": recording.steps, "outputs": [{"array": number}]}
    packing = json.loads(json.dumps(packing))
    return lambda others: replayed(packing, list(others), recording.constants)[0]


def _filled(arrays):
    filled = np.zeros_like(arrays[0], order="C", shape=(2, 3, 4, 2))
    for index in range(2):
        filled[:, :, :, index] = arrays[0].reshape(3, 2, 4).swapaxes(0, 1)
    return filled


FUNCTIONS = {
    "moves": lambda a: np.moveaxis(a[0].reshape(2, 3, 4), -1, 0).transpose(2, 0, 1).copy(),
    "turned": lambda a: a[0].T.ravel(),
    "filled up": lambda a: np.pad(a[0], ((0, 1), (0, 0), (2, 0))),
    "parts": lambda a: np.stack([a[0][1:, ..., :2], a[0][:2, :, 2:]]),
    "looked up": lambda a: a[0][:, np.array([[1], [0]]), np.array([0, 3, 2])],
    "multiplied": lambda a: (np.arange(12.0).reshape(3, 4) @ a[0].reshape(4, 6)).astype("f4"),
    "sums": lambda a: a[0].reshape(3, -1).sum(axis=1, dtype=np.float64) - 2 * a[0][:, 0, 0],
    "bits": lambda a: np.where(np.isnan(a[0]), 7, a[0].view(np.uint32) >> 16).astype(np.uint16),
    "assigned": _filled,
    "several": lambda a: a[0] * a[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_done_is_done_again_to_others(name):
    rng = np.random.default_rng(1)
    first, second = ([rng.standard_normal((3, 2, 4)).astype("f4"), rng.random(4)] for _ in "ab")
    again = recorded(FUNCTIONS[name], first)
    wanted = FUNCTIONS[name](second)
    result = again(second)
    assert result.dtype == wanted.dtype
    assert result.tobytes() == np.ascontiguousarray(wanted).tobytes()
    assert not np.array_equal(result, again(first)), "the inputs count"


@given(st.permutations(range(3)), st.integers(0, 2), st.integers(1, 3))
def test_any_order_of_axes(axes, axis, repeats):
    def function(arrays):
        return arrays[0].transpose(axes).repeat(repeats, axis=axis).reshape(-1)

    first, second = np.arange(24).reshape(2, 3, 4), np.arange(24, 48).reshape(2, 3, 4)
    assert np.array_equal(recorded(function, [first])([second]), function([second]))


def test_numbers_that_decide_are_fixed():
    numbers = np.array([3.0, 5.0], np.float32)
    again = recorded(lambda a: a[0] - float(a[1][0]), [np.ones(4), numbers])
    assert again([np.full(4, 9.0), numbers]).tolist() == [6.0] * 4
    with pytest.raises(ValueError, match="compiled for other numbers"):
        again([np.ones(4), numbers + 1])


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda a: np.add(a[0], 1, out=a[0]), "add in place"),
        (lambda a: np.add.accumulate(a[0]), "add"),
        (lambda a: np.linalg.norm(a[0]), "norm"),
    ],
)
def test_what_cannot_be_written_down_is_refused(function, said):
    _, arrays = Recording.of([np.ones(4)])
    with pytest.raises(NotRecordableError, match=said):
        function(arrays)


def test_what_is_lost_is_known():
    recording, [array] = Recording.of([np.ones((2, 2))])
    assert recording.number_of(np.ascontiguousarray(array.T)) is None
    with pytest.raises(NotRecordableError, match="by itself"):
        np.stack([array[0], array.diagonal()])
