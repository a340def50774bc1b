"""Epilogues of operators: what is part of the task, the reference, and the unscheduled function."""

import math

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from computing import NATIVE

FULL = {"bias": True, "residual": True}


def conv(**changes):
    return Conv2dSpec(**{"input": [1, 16, 6, 5], "filters": 32, "kernel": 3, **changes})


def test_a_plain_operator_says_nothing_of_epilogues():
    for spec in (conv(), DenseSpec(input=[4, 8], units=3)):
        assert spec.plain
        assert not {"bias", "residual", "activation"} & set(spec.arguments())


def test_a_plain_operator_keeps_the_key_its_records_were_stored_under():
    assert DenseSpec(input=[1, 16], units=3).task("x", "llvm").key == "33e750b049210f7d0b1be116"


@pytest.mark.parametrize("epilogue", [{"bias": True}, {"residual": True}, {"activation": "relu"}])
def test_an_epilogue_is_part_of_the_work_and_of_the_task(epilogue):
    task = conv(**epilogue).task("t", "llvm")
    assert task.key != conv().task("t", "llvm").key
    assert Conv2dSpec.of(task) == conv(**epilogue, name="t")
    assert not conv(**epilogue).plain


def test_an_unknown_activation_is_said_with_the_known_ones():
    with pytest.raises(ConfigError, match="'swish' is not supported") as caught:
        conv(activation="swish")
    assert "relu6" in caught.value.hint
    with pytest.raises(ConfigError, match="'swish'"):
        DenseSpec(input=[2, 3], units=4, activation="swish")


def test_weights_and_bias_are_constant_and_the_residual_is_not():
    assert operator_of(conv().task("t", NATIVE)).constants == {1}
    assert operator_of(conv(residual=True).task("t", NATIVE)).constants == {1}
    full = operator_of(conv(**FULL).task("t", NATIVE))
    assert full.constants == {1, 2}
    assert [array.shape for array in full.inputs()[2:]] == [(32,), (1, 32, 4, 3)]


def test_the_reference_adds_bias_then_residual_then_activates():
    operator = operator_of(conv(**FULL, activation="relu6", layout="NHWC").task("t", NATIVE))
    data, weights, bias, residual = operator.inputs()
    (plain,) = operator_of(conv(layout="NHWC").task("t", NATIVE)).reference([data, weights])
    (got,) = operator.reference([data, weights, bias, residual])
    by_hand = np.minimum(np.maximum(plain + bias[None, :, None, None] + residual, 0), 6)
    np.testing.assert_allclose(got, by_hand, rtol=1e-12)


def test_gelu_is_the_exact_one():
    operator = operator_of(DenseSpec(input=[1, 1], units=1, activation="gelu").task("t", NATIVE))
    for x in (-5.0, -0.3, 0.0, 1.0, 7.0):
        (got,) = operator.reference([np.array([[x]]), np.array([[1.0]])])
        assert got[0, 0] == pytest.approx(x * 0.5 * math.erfc(-x / math.sqrt(2)))
