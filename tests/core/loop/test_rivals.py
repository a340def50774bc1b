"""Rivals in several precisions: like is held against like, and each says what it computes in."""

from __future__ import annotations

import attrs
import pytest
from chameleon_core.loop.end.network_result import NetworkResult, alike, rival_rows
from chameleon_core.loop.end.shortfalls import slower


def _reduced(asked, seconds, precision=None, error=0.01):
    return {
        "asked": asked,
        "precision": precision or asked,
        "seconds": seconds,
        "max_relative_error": error,
    }


INT8 = NetworkResult(
    latency_seconds=0.004,
    max_relative_error=2e-3,
    precision="int8, the rest float32",
    rivals={"torch": 0.02, "onnxruntime": 0.016},
    rivals_reduced={
        "openvino as it comes": _reduced("as-it-comes", 0.002, "bfloat16", 3e-3),
        "onnxruntime int8": _reduced("int8", 0.005),
        "openvino int8": _reduced("int8", 0.003, "int8, the rest bfloat16"),
        "torch.compile bfloat16": _reduced("bfloat16", 0.001),
    },
    folder="here",
)


def test_like_comes_first_and_reduced_ones_last():
    assert [row.name for row in rival_rows(INT8)] == [
        "openvino int8",
        "onnxruntime int8",
        "onnxruntime",
        "torch",
        "torch.compile bfloat16",
        "openvino as it comes",
    ]
    assert [row.like for row in rival_rows(INT8)] == [True, True, False, False, False, False]
    precisions = {row.name: row.precision for row in rival_rows(INT8)}
    assert precisions["openvino as it comes"] == "bfloat16"
    assert precisions["torch"] == "float32"


def test_the_ratio_is_to_the_best_in_the_same_precision():
    assert INT8.ratio == pytest.approx(0.003 / 0.004)
    assert "slower than openvino int8" in (slower(INT8, []) or "")
    float32 = attrs.evolve(INT8, precision="float32")
    assert float32.ratio == pytest.approx(0.016 / 0.004)
    assert slower(float32, []) is None
    assert [row.name for row in rival_rows(float32) if row.like] == ["onnxruntime", "torch"]
    assert not any(row.like for row in rival_rows(float32)[2:])


def test_without_any_of_its_precision_it_is_held_against_float32():
    alone = attrs.evolve(INT8, precision="float16")
    assert alone.ratio == pytest.approx(0.016 / 0.004)


def test_a_framework_that_has_the_network_in_half_precision_says_so():
    half = attrs.evolve(INT8, rivals_precision={"torch": "bfloat16"})
    precisions = {row.name: row.precision for row in rival_rows(half)}
    assert (precisions["torch"], precisions["onnxruntime"]) == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("precision", "asked", "expected"),
    [
        ("int8", "int8", True),
        ("bfloat16 and int8", "int8", True),
        ("bfloat16", "float16", False),
        ("int8, the rest float32", "float32", False),
        ("float32", "float32", True),
    ],
)
def test_what_is_alike(precision, asked, expected):
    assert alike(precision, asked) is expected


def test_a_result_in_float32_says_no_more_than_it_did():
    plain = NetworkResult(latency_seconds=0.004, rivals={"torch": 0.02}, folder="here")
    assert not {"precision", "rivals_reduced", "rivals_precision"} & plain.to_json().keys()
    assert NetworkResult.from_json(plain.to_json()) == plain


def test_a_result_in_reduced_precision_is_read_again():
    assert NetworkResult.from_json(INT8.to_json()) == INT8
