"""What the page about a run says of its network."""

import re

import attrs
import pytest
from chameleon_bench._pages.run_page import page_of
from chameleon_bench._pages.run_record import run_record
from chameleon_core._loop.run import run_pipeline
from chameleon_core._network_result import NetworkResult

NETWORK = NetworkResult(
    latency_seconds=0.004,
    rivals={"torch": 0.02, "onnxruntime": 0.003},
    left_out={"openvino": "openvino is not <installed>"},
    unmeasured=(
        NetworkResult.Unmeasured(name="op1", kernel="first guess", because="it was not reached"),
    ),
    folder="here",
)


@pytest.fixture
def page(pipeline):
    record = run_record(run_pipeline(pipeline()).folder)
    return lambda network: page_of(attrs.evolve(record, network=network))


def test_that_it_is_slower_comes_first(page):
    shown = page(NETWORK)
    words = "the network is slower than onnxruntime: 4 ms against 3 ms"
    assert shown.index(words) < shown.index("<h3>Network")
    assert "openvino left out: openvino is not &lt;installed&gt;" in shown
    assert "not measured, delivered with the first guess (it was not reached): op1" in shown


BUCKET = NetworkResult.Bucket(
    name="64",
    shapes={"ids": (1, 64)},
    latency_seconds=0.001,
    rivals={"torch": 0.0009, "onnxruntime": 0.003},
    max_relative_error=2e-7,
    seconds=3.25,
)


def test_each_bucket_has_a_row(page):
    shown = page(attrs.evolve(NETWORK, buckets=(BUCKET,)))
    row = "<td>64</td><td>ids [1, 64]</td><td>1 ms</td><td>torch 900 µs</td><td>0.90</td>"
    assert row in shown
    assert "<td>3.2 s</td>" in shown


def test_rivals_in_several_precisions_are_not_mixed(page):
    rival = NetworkResult.Rival(
        asked="int8", precision="int8", seconds=0.005, max_relative_error=0.013
    )
    network = attrs.evolve(
        NETWORK,
        precision="int8",
        precisions=("int8",),
        max_relative_error=2e-3,
        rivals_reduced={"onnxruntime int8": rival},
    )
    shown = page(network)
    like = "<td>onnxruntime int8</td><td>int8</td><td>same precision</td><td>5 ms</td>"
    other = "<td>onnxruntime</td><td>float32</td><td>another precision</td><td>3 ms</td>"
    assert shown.index(like) < shown.index(other)
    assert "the network is slower" not in shown, "onnxruntime in float32 is not its like"


def test_a_rival_that_computes_in_another_dtype_by_default_is_in_the_result(page):
    rival = NetworkResult.Rival(
        asked="as-it-comes", precision="bfloat16", seconds=0.001, max_relative_error=3.7e-3
    )
    shown = page(attrs.evolve(NETWORK, rivals_reduced={"openvino as it comes": rival}))
    assert "onnxruntime, the fastest alternative here in float32, takes 3 ms" in shown
    words = "computes in bfloat16: 1.00 ms, with a largest relative error of 3.7e-03."
    assert shown.index(words) < shown.index("write `precision: bfloat16` in the pipeline")
    row = "<td>openvino as it comes</td><td>bfloat16</td><td>another precision</td><td>1 ms</td>"
    assert row in shown


def test_each_point_of_the_front_has_a_row(page):
    rows = (
        NetworkResult.FrontPoint(types={"float32": 5}, seconds=0.005, error=0.0, delivered=False),
        NetworkResult.FrontPoint(types={"int8": 5}, seconds=0.003, error=2e-3, delivered=True),
    )
    shown = page(attrs.evolve(NETWORK, front=rows, precision_summary="of 5 operators 5 in <int8>"))
    assert "Precision: of 5 operators 5 in &lt;int8&gt;." in shown
    assert "<td>float32 5</td><td>5 ms</td>" in shown
    assert shown.index("<td>float32 5</td>") < shown.index("<td>int8 5</td>")
    assert "Precision:" not in page(NETWORK)


def test_each_bucket_has_its_precision_and_its_points(page):
    types = {"int8": 5}
    point = NetworkResult.FrontPoint(
        types=types, seconds=0.003, error=2e-3, delivered=True, bucket="64"
    )
    line = "bucket 64: of 5 operators 5 in int8"
    buckets = (attrs.evolve(BUCKET, precision="int8"),)
    shown = page(attrs.evolve(NETWORK, buckets=buckets, front=(point,), precision_summary=line))
    assert "<td>64</td><td>int8 5</td><td>3 ms</td>" in shown
    assert "<td>3.2 s</td><td>int8</td>" in shown
    assert re.search(r"<th[^>]*>precision", shown)
