"""Rivals in several precisions: like is held against like, and each says what it computes in."""

import attrs
import pytest
from chameleon_cli._result_rows import network_remarks
from chameleon_core._network_result import NetworkResult


def _reduced(asked, seconds, precision=None, error=0.01):
    return NetworkResult.Rival(
        asked=asked, precision=precision or asked, seconds=seconds, max_relative_error=error
    )


INT8 = NetworkResult(
    latency_seconds=0.004,
    max_relative_error=2e-3,
    precision="int8, the rest float32",
    precisions=("int8",),
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
    assert [name for name, _ in INT8.rival_rows] == [
        "openvino int8",
        "onnxruntime int8",
        "onnxruntime",
        "torch",
        "torch.compile bfloat16",
        "openvino as it comes",
    ]
    like = [rival.asked in INT8.precisions for _, rival in INT8.rival_rows]
    assert like == [True, True, False, False, False, False]
    precisions = {name: rival.precision for name, rival in INT8.rival_rows}
    assert precisions["openvino as it comes"] == "bfloat16"
    assert precisions["torch"] == "float32"


def test_the_ratio_is_to_the_best_in_the_same_precision():
    assert INT8.ratio == pytest.approx(0.003 / 0.004)
    assert "slower than openvino int8" in (INT8.slower() or "")
    float32 = attrs.evolve(INT8, precision="float32", precisions=("float32",))
    assert float32.ratio == pytest.approx(0.016 / 0.004)
    assert float32.slower() is None
    like = [name for name, rival in float32.rival_rows if rival.asked == "float32"]
    assert like == [name for name, _ in float32.rival_rows[:2]] == ["onnxruntime", "torch"]


def test_what_a_rival_computes_in_by_default_counts_if_the_network_lacks_it():
    [(name, rival)] = INT8.rivals_by_default.items()
    assert (name, rival.precision) == ("openvino as it comes", "bfloat16")
    mixed = attrs.evolve(INT8, precisions=("bfloat16", "int8"))
    plain = {name: attrs.evolve(rival, precision="float32")}
    assert not mixed.rivals_by_default
    assert not attrs.evolve(INT8, rivals_reduced=plain).rivals_by_default


def test_without_any_of_its_precision_it_is_held_against_float32():
    alone = attrs.evolve(INT8, precision="float16", precisions=("float16",))
    assert alone.ratio == pytest.approx(0.016 / 0.004)


def test_a_framework_that_has_the_network_in_half_precision_says_so():
    half = attrs.evolve(INT8, rivals_precision={"torch": "bfloat16"})
    precisions = {name: rival.precision for name, rival in half.rival_rows}
    assert (precisions["torch"], precisions["onnxruntime"]) == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("words", "precisions"),
    [
        ("int8", ("int8",)),
        ("bfloat16 and int8", ("bfloat16", "int8")),
        ("bfloat16, float16 and int8, the rest float32", ("bfloat16", "float16", "int8")),
        ("float32", ("float32",)),
    ],
)
def test_folders_of_earlier_versions_say_precisions_in_words(words, precisions):
    assert NetworkResult.from_json({"precision": words}).precisions == precisions


def test_what_is_said_of_the_verification_is_read_again():
    document = {
        "reference": "torch float32",
        "conditioning": "the network makes much of roundings",
        "own_precision": {"dtype": "bfloat16", "reference": "torch", "max_relative_error": 1e-3},
        "vectors": "without AMX, 3 of its kernels run with vectors instead",
    }
    network = NetworkResult.from_json(document)
    assert document.items() <= network.to_json().items()
    line, vectors = network_remarks(network)
    assert vectors == document["vectors"]
    assert line.startswith("compared with torch float32; the network makes much of roundings; ")
    assert line.endswith("; in bfloat16 1.0e-03 off torch")


def test_a_result_in_float32_says_no_more_than_it_did():
    plain = NetworkResult(latency_seconds=0.004, rivals={"torch": 0.02}, folder="here")
    assert not {"precision", "rivals_reduced", "rivals_precision"} & plain.to_json().keys()
    assert NetworkResult.from_json(plain.to_json()) == plain


def test_a_result_in_reduced_precision_is_read_again():
    assert NetworkResult.from_json(INT8.to_json()) == INT8
