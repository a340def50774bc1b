"""What a delivered network says that it computes in, and what is compared with it."""

from types import SimpleNamespace

import pytest
from chameleon_core._errors import ChameleonError
from chameleon_networks._artifact.writer import write_manifest
from chameleon_networks._comparison import comparison as module
from chameleon_networks._comparison.comparison import (
    Compared,
    compare_networks,
    delivered_precision,
)
from marks import full

pytestmark = pytest.mark.usefixtures("forked_networks")


@pytest.mark.parametrize(
    ("manifest", "quantized", "expected"),
    [
        ({}, False, "float32"),
        ({}, True, "int8"),
        ({"precision": {"precision": "int8, the rest float32"}}, False, "int8, the rest float32"),
    ],
)
def test_a_network_is_in_the_types_that_were_chosen_or_that_it_came_with(
    tmp_path, manifest, expected, *, quantized
):
    write_manifest(tmp_path, manifest)
    network = SimpleNamespace(quantized=quantized)
    facts = delivered_precision(tmp_path, network)
    assert facts.precision == expected
    assert facts.precisions == (expected.partition(",")[0],)


def test_what_fails_is_left_out_with_its_reason(tiny, monkeypatch):
    opened = module.framework_process

    def failing(network, name, *, threads):
        if name == "openvino":
            raise ChameleonError("openvino failed: it has no such operator\nand more")
        return opened(network, name, threads=threads)

    monkeypatch.setattr(module, "framework_process", failing)
    names = ("onnxruntime", "openvino")
    result = compare_networks(Compared(network=tiny, ours={}, names=names, threads=1, rounds=2))
    assert list(result.times) == ["onnxruntime"]
    assert result.left_out == {"openvino": "openvino failed: it has no such operator"}
    assert result.about == {}, "no other precision was asked for"


@pytest.mark.full
def test_errors_are_those_against_the_reference(tiny, monkeypatch):
    pytest.importorskip("openvino")
    asked = Compared(
        network=tiny,
        ours={},
        names=("openvino",),
        precisions=("as-it-comes",),
        threads=1,
        rounds=2,
    )
    monkeypatch.setattr(type(tiny), "precision_of", lambda _, name: f"that of {name}")
    result = compare_networks(asked)
    assert list(result.times) == ["openvino", "openvino as it comes"], "the reference is not timed"
    rival = result.about["openvino"]
    assert rival.precision == rival.asked == "that of openvino"
    assert 0.0 < rival.max_relative_error < 1e-4


@pytest.mark.parametrize("precision", ["bfloat16", full("float32")])
def test_what_computes_in_another_dtype_by_default_is_timed_unasked(
    tiny, monkeypatch, by_default, precision
):
    by_default(module, precision)
    names = ("onnxruntime",)
    result = compare_networks(Compared(network=tiny, ours={}, names=names, threads=1, rounds=2))
    name = "openvino as it comes"
    assert list(result.times) == ["onnxruntime", *([name] if precision == "bfloat16" else [])]
    assert not result.left_out
    if precision == "bfloat16":
        about = result.about[name]
        assert (about.asked, about.precision) == ("as-it-comes", "bfloat16")
        assert about.max_relative_error == pytest.approx(4e-3, rel=0.01)
    by_default(module, None)
    result = compare_networks(Compared(network=tiny, ours={}, names=names, threads=1, rounds=2))
    assert list(result.times) == ["onnxruntime"]
    assert not result.about, "float32 alone needs no errors"
