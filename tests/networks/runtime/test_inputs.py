"""Inputs of every kind: the same answers, without a copy if possible, or a clear error."""

import numpy as np
import pytest
import torch
from chameleon_networks._artifact.load import load
from chameleon_networks._graph.relax_utils import relax

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers
from ..modules import module_of  # noqa: TID252 - shared by folders
from .conftest import SHAPE

DATA = np.random.default_rng(8).standard_normal(SHAPE, np.float32)


class OnlyDlpack:
    """What exports its memory by DLPack and in no other way."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnlyInterface:
    """What has NumPy's array interface alone."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self._array = array


def _fixed(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _at(offset):
    """Places an array at an address that is so much more than a multiple of 64."""

    def placed(array):
        memory = np.empty(array.nbytes + 128, np.uint8)
        start = -memory.ctypes.data % 64 + offset
        copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        assert copy.ctypes.data % 64 == offset
        return copy

    return placed


def _tensor(array):
    return torch.from_numpy(array)


WITHOUT_A_COPY = {
    "an array": np.array,
    "a read-only array": _fixed,
    "at an odd element": _at(4),
    "at half a vector": _at(16),
    "dlpack": OnlyDlpack,
    "the array interface": OnlyInterface,
    "a tensor of torch": _tensor,
    "a subclass": lambda array: array.view(type("Own", (np.ndarray,), {})),
    "a buffer": lambda array: memoryview(np.array(array)),
}
WITH_A_COPY = {
    "Fortran's order": np.asfortranarray,
    "every second element": lambda array: np.repeat(array, 2, axis=3)[..., ::2],
    "backwards": lambda array: np.array(array[:, ::-1, :, ::-1])[:, ::-1, :, ::-1],
    "permuted": lambda array: array.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0),
    "at half an element": _at(3),
    "float64": lambda array: array.astype(np.float64),
    "the other order of bytes": lambda array: array.astype(">f4"),
    "lists": lambda array: array.tolist(),
    "a permuted tensor of torch": lambda array: _tensor(array.transpose(0, 2, 3, 1).copy()).permute(
        0, 3, 1, 2
    ),
}


@pytest.fixture(scope="module")
def network(called):
    """The network."""
    with load(called.path) as loaded:
        yield loaded


def _address(value):
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int(np.asarray(getattr(value, "_array", value)).ctypes.data)


@pytest.mark.parametrize("kind", [*WITHOUT_A_COPY, *WITH_A_COPY])
def test_arrays_of_every_kind_are_read(network, kind):
    value = {**WITHOUT_A_COPY, **WITH_A_COPY}[kind](DATA)
    [array] = network.arrays([value])
    assert array.flags.c_contiguous
    assert array.flags.aligned
    if kind in WITHOUT_A_COPY:
        assert array.ctypes.data == _address(value)
    np.testing.assert_array_equal(network(value), network(DATA))


def test_a_value_for_all_elements_is_read(network):
    same = np.broadcast_to(np.float32(3), SHAPE)
    np.testing.assert_array_equal(network(same), network(np.array(same)))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (DATA[0], r"x0 must have shape \[1, 3, 12, 12\], not \[3, 12, 12\]"),
        (DATA.astype(str), "must hold float32, not <U"),
        (DATA.astype(object), "must hold float32, not object"),
        (DATA.astype(np.complex64), "must hold float32, not complex64"),
        (np.zeros(SHAPE, "datetime64[s]"), "must hold float32, not datetime64"),
        (np.zeros(SHAPE, "f4,f4"), "must hold float32, not"),
        (None, r"must have shape .*, not \[\]"),
        ("a text", r"must have shape .*, not \[\]"),
        ([[1, 2], [3]], "inhomogeneous shape"),
        (torch.zeros(SHAPE).bfloat16(), "x0 must be an array of float32: .*BFloat16"),
        (torch.zeros(SHAPE, requires_grad=True), "x0 must be an array of float32: .*detach"),
    ],
)
def test_what_does_not_fit_is_told(network, value, said):
    with pytest.raises(ValueError, match=said):
        network(value)


def test_fractions_do_not_become_whole_numbers(whole_numbers):
    assert whole_numbers([2, -3]).tolist() == [4, -6]
    assert whole_numbers(np.array([True, False])).tolist() == [2, 0]
    for value in ([2.5, 1], np.zeros(2, np.float16)):
        with pytest.raises(ValueError, match="x0 must hold int32, not float"):
            whole_numbers(value)


@pytest.fixture
def whole_numbers(tmp_path):
    """A network of whole numbers."""
    return deliverer(tmp_path)(
        module_of(lambda emit, x: emit(relax.op.add(x, x)), ((2,), "int32"))
    ).run


def test_outputs_share_no_memory(network):
    data = DATA.copy()
    outputs = [network(data) for _ in range(4)]
    for number, output in enumerate(outputs):
        assert output.flags.owndata
        assert output.flags.writeable
        assert not any(np.shares_memory(output, other) for other in (data, *outputs[:number]))
    copy = outputs[0].copy()
    data[...] = 0
    outputs[1][...] = 7
    np.testing.assert_array_equal(outputs[0], copy)
    np.testing.assert_array_equal(network(DATA), copy)


@pytest.mark.parametrize("wrapped", [OnlyDlpack, OnlyInterface, np.ndarray.tolist])
def test_buckets_take_them_as_well(bucketed, wrapped):
    with np.load(bucketed.samples) as arrays, load(bucketed.path) as network:
        for data, wanted in zip(arrays.files[::2], arrays.files[1::2], strict=True):
            np.testing.assert_array_equal(network(wrapped(arrays[data])), arrays[wanted])
