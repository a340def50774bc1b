"""The lines that a run ends with: how fast, against what, where the result is."""

import attrs
import chameleon_core as cc
import pytest
from chameleon_core._errors import ExitCode
from chameleon_core._loop.end.result import OperatorResult, RunResult, VariantResult
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.schema import Requirement
from synthetic import run_synthetic, synthetic_document


def operator(name, tuned, untuned=None, vendor=None):
    variants = [VariantResult(name="tuned", seconds=tuned)]
    if untuned is not None:
        variants.append(VariantResult(name="untuned", seconds=untuned))
    if vendor is not None:
        variants.append(VariantResult(name="lib", variant="a", vendor=True, seconds=vendor))
    return OperatorResult(name=name, task={}, space="", fingerprint="", variants=tuple(variants))


def lines(folder, *operators, **more):
    return RunResult(folder=folder, seconds=1.0, operators=operators, **more).summary_lines


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "my runs" / "a"


def test_one_operator_against_its_baselines_and_a_command_that_a_shell_reads(folder):
    usage = "chameleon export {folder} -o {folder}/kernels"
    assert lines(folder, operator("conv", 1.5e-4, 0.16, 3e-4), usage=usage) == [
        "conv takes 150 µs.",
        "It is 2.00 times as fast as lib (300 µs).",
        "The result is in my runs/a. Use it: chameleon export 'my runs/a' -o 'my runs/a'/kernels",
    ]


def test_several_operators_by_their_geometric_means(folder):
    first, second = operator("a", 1e-3, vendor=2e-3), operator("b", 1e-3, vendor=0.5e-3)
    assert lines(folder, first, second, operator("c", None)) == [
        "2 operators of 3 take 2.00 ms together.",
        "They are 1.00 times as fast as lib (geometric mean of 2, from 0.50 to 2.00).",
        "The result is in my runs/a.",
    ]
    assert lines(folder, operator("a", 1e-3))[:-1] == ["a takes 1.00 ms."]
    assert lines(folder, operator("a", 1e-3, 2e-3))[:-1] == [
        "a takes 1.00 ms.",
        "It is 2.00 times as fast as untuned (2.00 ms).",
    ]
    assert lines(folder, operator("a", None), operator("b", None)) == []


@pytest.mark.parametrize(("low", "busy"), [(1.45, False), (1.05, True)])
def test_the_ratio_has_its_interval_and_a_busy_machine_is_said(folder, low, busy):
    network = NetworkResult(
        latency_seconds=4e-3,
        rivals={"openvino": 6e-3},
        ratio_interval=(low, 1.61),
        folder=str(folder / "network"),
    )
    assert NetworkResult.from_json(network.to_json()) == network
    _, against, *others = lines(folder, operator("conv", None), network=network)
    assert against.startswith(f"It is 1.50 ({low:.2f} to 1.61) times as fast as openvino")
    assert any("The machine was busy" in line for line in others) == busy


def test_a_network_against_the_fastest_other(folder):
    network = NetworkResult(
        latency_seconds=4e-3,
        untuned_seconds=2.0,
        rivals={"torch": 10e-3, "openvino": 6e-3},
        folder=str(folder / "network"),
    )
    usage = 'from here import load; network = load("{folder}/network")'
    result = lines(folder, operator("conv", None), network=network, usage=usage)
    speed, against, location = result
    assert speed == "The network takes 4.00 ms for one inference."
    first = "It is 1.50 times as fast as openvino (6.00 ms), the fastest other"
    assert against == f"{first}; torch 10.0 ms."
    assert location.endswith('Use it: from here import load; network = load("my runs/a/network")')
    buckets = (NetworkResult.Bucket(name="1", latency_seconds=4e-3),)
    alone = attrs.evolve(network, rivals={}, buckets=buckets, precision="int8")
    assert lines(folder, network=alone)[:2] == [
        "The network takes 4.00 ms for one inference in each bucket, in int8.",
        "Untuned, it takes 2.00 s.",
    ]
    assert "not timed" in lines(folder, network=attrs.evolve(network, latency_seconds=None))[0]
    assert lines(folder, network=attrs.evolve(network, failure="it broke")) == []


def test_a_network_that_nothing_verified_says_so_and_misses_a_requirement(folder):
    network = NetworkResult(latency_seconds=4e-3, folder="net", unverified="torch cannot: it broke")
    words = "The network is delivered, not verified, since torch cannot: it broke."
    speed = "The network takes 4.00 ms for one inference."
    assert lines(folder, network=network)[:2] == [words, speed]
    untimed = attrs.evolve(network, latency_seconds=None)
    assert lines(folder, network=untimed)[:2] == [words, "It is not timed."]
    require = Requirement(verified=True)
    result = RunResult(folder=folder, seconds=1.0, operators=(), network=network, require=require)
    assert result.missed == ["network: delivered, not verified, since torch cannot: it broke"]
    assert result.exit_code == ExitCode.THRESHOLD_MISSED
    assert attrs.evolve(result, require=None).exit_code == ExitCode.OK
    right = attrs.evolve(result, network=attrs.evolve(network, unverified=None))
    assert right.exit_code == ExitCode.OK
    assert attrs.evolve(result, network=NetworkResult()).missed == [
        "network: a verified one was asked for, but there is none"
    ]


def test_a_network_in_float32_is_not_compared_with_float32_alone(folder):
    rival = NetworkResult.Rival(
        asked="as-it-comes", precision="bfloat16", seconds=2e-3, max_relative_error=3.7e-3
    )
    network = NetworkResult(
        latency_seconds=4e-3,
        rivals={"torch": 10e-3, "openvino": 6e-3},
        rivals_reduced={"openvino as it comes": rival},
        folder=str(folder / "network"),
    )
    same = "It is 1.50 times as fast as openvino (6.00 ms), the fastest other in float32"
    default = "openvino as it comes, with its default settings, computes in bfloat16"
    other = [
        f"{default}: 2.00 ms, with a largest relative error of 3.7e-03.",
        "To ask Chameleon for the same, write `precision: bfloat16` in the pipeline.",
    ]
    assert lines(folder, network=network)[1:-1] == [f"{same}; torch 10.0 ms.", *other]
    int8 = {**network.rivals_reduced, "torch int8": attrs.evolve(rival, asked="int8", seconds=8e-3)}
    quantized = attrs.evolve(network, precisions=("int8",), rivals_reduced=int8)
    against = "It is 2.00 times as fast as torch int8 (8.00 ms), the fastest other in int8."
    assert lines(folder, network=quantized)[1:-1] == [against, *other]
    half = attrs.evolve(network, precisions=("bfloat16",))
    assert lines(folder, network=half)[1:-1] == [
        f"{same.removesuffix(' in float32')}; torch 10.0 ms."
    ]
    alone = attrs.evolve(network, rivals={}, untuned_seconds=1.0)
    assert lines(folder, network=alone)[1:-1] == ["Untuned, it takes 1.00 s.", *other]


def test_a_run_read_in_python_says_the_same(folder):
    result = run_synthetic(synthetic_document(folder))
    assert result.summary_lines
    assert str(cc.load_run(folder)).splitlines() == result.summary_lines
    # Nothing was measured on hardware, so there is nothing to use.
    assert not result.usage
