"""Kernels: outputs, timing hot and cold, and buffers of their own."""

import resource

import numpy as np
import pytest
from chameleon_tvm._building import rotation
from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm.api import DenseSpec

TARGET = '{"kind": "llvm", "num-cores": 2}'


OPERATOR = operator_of(DenseSpec(input=[8, 16], units=4).task("t", TARGET))


@pytest.fixture(scope="module")
def program():
    return Program(
        function=OPERATOR.prim_func(),
        inputs=OPERATOR.arrange(OPERATOR.inputs()),
        unpack=lambda outputs: [outputs[0].T],
    )


@pytest.fixture(scope="module")
def dense(program):
    return OPERATOR, TVMKernel(program, TARGET)


def test_without_constants_inputs_and_outputs_are_cold(dense):
    assert dense[1].cold_bytes_each == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_with_constants_they_alone_are_cold(program, monkeypatch):
    def unwritable(tensor, view=np.from_dlpack):  # as of NumPy below 2.2
        array = view(tensor)
        array.setflags(write=False)
        return array

    monkeypatch.setattr(np, "from_dlpack", unwritable)
    kernel = TVMKernel(program, TARGET, constants=OPERATOR.constants)
    assert kernel.cold_bytes_each == 4 * 16 * 4
    assert kernel.time(3, cold_bytes=1000) > 0
    copies = [kernel._rotation[copy] for copy in range(kernel._rotation.copies)]
    data, weights, output = zip(*copies, strict=True)
    assert len({id(row) for row in data}) == len({id(row) for row in output}) == 1
    addresses = [np.from_dlpack(weight).ctypes.data for weight in weights]
    assert len(set(addresses)) == 5
    assert all(address % 64 == 0 for address in addresses)
    for weight in weights:
        np.testing.assert_array_equal(weight.numpy(), program.inputs[1])
    expected = OPERATOR.reference(OPERATOR.inputs())[0].T
    np.testing.assert_allclose(kernel.outputs()[0], expected, atol=1e-4)


@pytest.mark.parametrize("cold_bytes", [0, 1 << 16])
def test_time_is_positive_and_leaves_outputs_right(dense, cold_bytes):
    operator, kernel = dense
    for number in (1, 3):
        assert 0 < kernel.time(number, cold_bytes=cold_bytes) < 1
    expected = operator.reference(operator.inputs())[0].T
    np.testing.assert_allclose(kernel.outputs()[0], expected, atol=1e-4)


@pytest.mark.parametrize("cold_bytes", [0, 1 << 16])
def test_repeats_are_timed_one_by_one(dense, cold_bytes):
    kernel = dense[1]
    for count in (4, 1):
        seconds = kernel.repeats(2, count, cold_bytes=cold_bytes)
        assert len(seconds) == count
        assert all(0 < each < 1 for each in seconds)


def test_cold_copies_cover_the_bytes_asked_for(dense):
    kernel = dense[1]
    kernel.time(2, cold_bytes=1 << 16)
    others = kernel._rotation.copies - 1
    assert others * kernel.cold_bytes_each >= 1 << 16


def test_memory_of_copies_serves_the_next_kernel(program):
    addresses = []
    for _ in range(2):
        kernel = TVMKernel(program, TARGET, constants=OPERATOR.constants)
        assert kernel.time(1, cold_bytes=1000) > 0
        addresses.append(np.from_dlpack(kernel._rotation[0][1]).ctypes.data)
        del kernel
    assert addresses[0] == addresses[1]


@pytest.mark.parametrize(
    ("limit", "kept"), [(resource.RLIM_INFINITY, 2), (1 << 28, 2), (1 << 20, 0)]
)
def test_blocks_are_kept_within_the_memory_limit(limit, kept, program, monkeypatch):
    spares = []
    monkeypatch.setattr(rotation, "_free_blocks", spares)
    monkeypatch.setattr(rotation.resource, "getrlimit", lambda _: (limit, limit))
    kernels = [TVMKernel(program, TARGET, constants=OPERATOR.constants) for _ in range(2)]
    for kernel in kernels:
        assert kernel.time(1, cold_bytes=1000) > 0
    del kernel, kernels
    assert len(spares) == kept
