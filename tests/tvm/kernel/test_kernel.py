"""Kernels: outputs, timing hot and cold, and buffers of their own."""

import numpy as np
import pytest
from chameleon_tvm.building.kernel import Program, TVMKernel
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.operators.specs import DenseSpec

TARGET = '{"kind": "llvm", "num-cores": 2}'


@pytest.fixture(scope="module")
def dense():
    operator = operator_of(DenseSpec(input=[8, 16], units=4).task("t", TARGET))
    program = Program(
        function=operator.prim_func(),
        inputs=operator.arrange(operator.inputs()),
        unpack=lambda outputs: [outputs[0].T],
    )
    return operator, TVMKernel(program, TARGET)


def test_outputs_are_unpacked_and_repeatable(dense):
    operator, kernel = dense
    expected = operator.reference(operator.inputs())[0].T
    first = kernel.outputs()[0].copy()
    np.testing.assert_allclose(first, expected, atol=1e-4)
    np.testing.assert_array_equal(kernel.outputs()[0], first)


def test_without_constants_inputs_and_outputs_are_cold(dense):
    assert dense[1].cold_bytes_each == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_with_constants_they_alone_are_cold(dense):
    operator, other = dense
    kernel = TVMKernel(other._program, TARGET, constants=operator.constants)
    assert kernel.cold_bytes_each == 4 * 16 * 4
    assert kernel.time(3, cold_bytes=1000) > 0
    data, weights, output = zip(*kernel._rotation, strict=True)
    assert len({id(row) for row in data}) == len({id(row) for row in output}) == 1
    assert len({id(weight) for weight in weights}) == len(weights) == 5
    expected = operator.reference(operator.inputs())[0].T
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
    others = len(kernel._rotation) - 1
    assert others * kernel.cold_bytes_each >= 1 << 16
