"""Networks in reduced precision in processes of their own, each with its error."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core._network_result import NetworkResult
from chameleon_networks._comparison import baselines
from chameleon_networks._comparison.reduced_precision import (
    ReducedComparison,
    ReducedFrameworks,
    compared_precisions,
    max_relative_error,
    reduced_comparison,
    reduces_by_default,
    sum_reduced_times,
)
from chameleon_networks._delivery.delivery_steps import DeliverableNetwork
from chameleon_networks._evaluation.processes import framework_process, reduced_process
from chameleon_networks._evaluation.verify import Sample
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.relax_utils import tvm
from chameleon_networks._importers.sources import OnnxNetwork
from chameleon_system._processor import own_architecture

pytestmark = pytest.mark.usefixtures("forked_networks")


def _random(network):
    rng = np.random.default_rng(1)
    return [network.samples(rng) for _ in range(8)]


def _request(network, calibration, *precisions):
    samples = [Sample(inputs=network.samples(np.random.default_rng(0)))]
    run = network.framework(network.frameworks[0], 1)
    return ReducedComparison(
        precisions=precisions,
        calibration=calibration,
        samples=samples,
        expected=[run(sample.inputs) for sample in samples],
    )


def test_each_has_its_precision_and_its_error(tiny):
    pytest.importorskip("openvino")
    request = _request(tiny, _random(tiny), "int8", "as-it-comes")
    with contextlib.ExitStack() as stack:
        rivals = ReducedFrameworks(tiny, request, threads=1, stack=stack)
        opened = rivals.opened()
        names = {process.name for process in opened}
        assert {"onnxruntime int8", "openvino as it comes"} <= names
        assert names | set(rivals.left_out) == names | {"openvino int8"}
        # One that failed while it was timed has no seconds.
        results = rivals.results(dict.fromkeys(names, 2.0) | {"openvino as it comes": None})
    assert rivals.left_out["openvino as it comes"] == "it failed while it was timed"
    int8 = results["onnxruntime int8"]
    assert (int8.asked, int8.precision, int8.seconds) == ("int8", "int8", 2.0)
    assert 1e-4 < int8.max_relative_error < 0.5


def test_what_a_framework_cannot_do_is_a_sentence(tiny):
    request = _request(tiny, [[np.zeros((1, 5, 8, 8), np.float32)]], "int8")
    with contextlib.ExitStack() as stack:
        rivals = ReducedFrameworks(tiny, request, threads=1, stack=stack)
        assert rivals.opened() == []
        assert rivals.results({}) == {}
    assert "onnxruntime int8 failed" in rivals.left_out["onnxruntime int8"]
    assert "\n" not in rivals.left_out["onnxruntime int8"]


@pytest.mark.parametrize("precision", [("float32",), ()])
def test_float32_is_compared_with_nothing_new(precision):
    assert compared_precisions(precision) == ()


@pytest.mark.parametrize(
    ("answers", "quantized", "expected"),
    [
        ([{"default": "float32"}, {}], False, False),
        ([{"default": "float32"}, {"default": "bfloat16"}], False, True),
        ([{"default": "bfloat16"}], False, True),
        ([{"default": "bfloat16"}], True, False),
    ],
)
def test_a_framework_that_does_not_compute_in_float32_by_default_is_found(
    answers, *, quantized, expected
):
    processes = [SimpleNamespace(answer=answer) for answer in answers]
    network = SimpleNamespace(quantized=quantized)
    assert reduces_by_default(network, processes) is expected


def test_reduced_precision_is_compared_with_its_like_and_as_it_comes():
    assert compared_precisions(["int8", "float32", "int8"]) == ("int8", "as-it-comes")


@pytest.mark.parametrize(
    ("got", "said"),
    [([np.full(3, np.nan, np.float32)], "not finite"), ([np.ones(4, np.float32)], "shapes")],
)
def test_what_gives_no_numbers_has_no_error(got, said):
    expected = [[np.ones(3, np.float32)]]
    with pytest.raises(ChameleonError, match=said):
        max_relative_error(lambda _: got, [Sample(inputs=[])], expected)


@pytest.mark.parametrize(
    ("second", "wanted", "error"),
    [([1.5, 2.0], [1.0, 2.0], 0.25), ([0.1, -0.1], [0.05, 0.0], 0.1 / 2.0)],
    ids=["the largest of all samples", "outputs of one sample are near zero"],
)
def test_an_error_is_a_share_of_the_largest_output_of_all_samples(second, wanted, error):
    answers = iter([[np.array([1.0, 2.0])], [np.array(second)]])
    expected = [[np.array([1.0, 2.0])], [np.array(wanted)]]
    samples = [Sample(inputs=[])] * 2
    found = max_relative_error(lambda _: next(answers), samples, expected)
    assert found == pytest.approx(error)


def test_buckets_are_summed_where_all_of_them_were_timed():
    def rival(seconds, error):
        return NetworkResult.Rival(
            asked="int8", precision="int8", seconds=seconds, max_relative_error=error
        )

    first = {"a": rival(1.0, 0.1), "b": rival(1.0, 0.1)}
    second = {"a": rival(2.0, 0.3)}
    results = [NetworkResult(rivals_reduced=rivals) for rivals in (first, second)]
    assert sum_reduced_times(results) == {"a": rival(3.0, 0.3)}
    assert sum_reduced_times([NetworkResult()] * 2) == {}, "in float32 there are none"


def test_its_process_says_no_precision_of_what_is_in_float32(tiny):
    with framework_process(tiny, "onnxruntime", threads=1) as process:
        assert process.answer == {"default": "float32"}


@pytest.mark.full
def test_openvino_says_what_it_would_compute_in_by_itself(tiny):
    pytest.importorskip("openvino")
    with (
        framework_process(tiny, "openvino", threads=1) as process,
        reduced_process(tiny, "openvino as it comes", (Path(), 0), threads=1) as other,
    ):
        assert process.answer["default"] in {"float32", "bfloat16", "float16"}
        if own_architecture() == "x86_64":  # elsewhere it depends on the network
            assert process.answer["default"] == other.answer["precision"]


@pytest.fixture
def deliver(delivery_into, tmp_path, monkeypatch):
    """Delivers a network without timing anything."""

    def timed(processes, *_, **__):
        return {process.name: [1.0] for process in processes}

    def delivered(network):
        frontend = NetworkFrontend(network)
        result = frontend.deliver(delivery_into(frontend, tmp_path / "network"))
        assert result.failure is None
        return result

    monkeypatch.setattr(baselines, "time_in_turns", timed)
    return delivered


@pytest.fixture
def compare(tiny):
    """The network with a comparison at the end of its delivery."""
    return OnnxNetwork(attrs.evolve(tiny.options, compare=True, in_place=False))


@pytest.mark.full
def test_a_delivery_is_compared_in_reduced_precision_where_it_asks_for_it(
    compare, deliver, monkeypatch
):
    pytest.importorskip("openvino")

    def request(_, run):
        return reduced_comparison(compare, compared_precisions(["int8"]), None, run)

    monkeypatch.setattr(DeliverableNetwork, "reduced_comparison", request)
    result = deliver(compare)
    assert set(result.rivals) == {"onnxruntime", "openvino"}
    assert result.rivals_precision == {}
    reduced = result.rivals_reduced
    assert {"onnxruntime int8", "openvino as it comes"} <= set(reduced)
    assert {"openvino int8"} == {"openvino int8"} & (set(reduced) | set(result.left_out))
    assert NetworkResult.from_json(result.to_json()) == result


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_a_delivery_in_float32_is_compared_with_what_others_compute_in_by_default(
    compare, deliver, by_default, precision
):
    by_default(baselines, precision)
    result = deliver(compare)
    assert result.precision == "float32"
    assert "openvino as it comes" not in result.left_out
    if precision == "float32":
        assert not result.rivals_reduced, "it would be there twice"
        return
    [(name, rival)] = result.rivals_reduced.items()
    assert (name, rival.asked, rival.seconds) == ("openvino as it comes", "as-it-comes", 1.0)
    assert rival.precision == "bfloat16"
    assert rival.max_relative_error == pytest.approx(4e-3, rel=0.01)
    assert NetworkResult.from_json(result.to_json()) == result


@pytest.mark.full
def test_a_delivery_stays_where_what_it_is_compared_with_fails(
    compare, deliver, by_default, monkeypatch
):
    def request(*_):
        raise ConfigError("calibrate: data.py:batches yields no batch", hint="Yield two.")

    def refused(*_):
        raise tvm.error.InternalError("Check failed: no schedule")

    by_default(baselines, None)
    monkeypatch.setattr(DeliverableNetwork, "reduced_comparison", request)
    monkeypatch.setattr(baselines, "compile_baseline", refused)
    result = deliver(compare)
    assert result.untuned_seconds is None
    assert result.rivals_reduced == {}
    reason = result.left_out["what is in reduced precision"]
    assert reason == "calibrate: data.py:batches yields no batch"


def test_a_network_in_float32_is_compared_with_nothing_else(compare):
    settled = NetworkFrontend(compare)
    assert settled.reduced_comparison(lambda inputs: inputs) is None
