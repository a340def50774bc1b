"""What is told of a network that was compiled for several shapes."""

import json

import attrs
import pytest
from chameleon_cli._results_table import print_network
from chameleon_core._errors import ExitCode
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.schema import Requirement
from synthetic import SyntheticFrontend


def _row(name, latency, **rivals):
    fastest = min(rivals.values(), default=None)
    return {
        "name": name,
        "shapes": {"ids": [1, int(name)]},
        "latency_seconds": latency,
        "untuned_seconds": None,
        "rivals": rivals,
        "ratio": fastest / latency if fastest and latency else None,
        "max_relative_error": 2e-7,
        "seconds": 3.25,
        "precision": "float32",
        "precisions": ["float32"],
    }


ROWS = [_row("64", 0.001, torch=0.0009, onnxruntime=0.003), _row("128", 0.002, torch=0.004)]


class Bucketed(SyntheticFrontend):
    """Delivers a network in two buckets."""

    def deliver(self, delivery):
        return NetworkResult(
            latency_seconds=0.003,
            rivals={"torch": 0.0049},
            max_relative_error=2e-7,
            buckets=tuple(map(NetworkResult.Bucket.from_json, ROWS)),
            folder=str(delivery.folder),
        )


@pytest.fixture
def result(modelled):
    finished = run_pipeline(modelled(Bucketed, [[5, 5]]))
    assert finished.exit_code is ExitCode.OK
    return finished


def test_rows_are_kept_and_shown(result, capsys):
    written = json.loads((result.folder / "best.json").read_text())
    assert written["network"]["buckets"] == ROWS
    assert RunResult.from_json(written, folder=result.folder).network == result.network
    print_network(result.network)
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["64", "1.00", "ms", "-", "torch", "900", "µs", "0.90", "2.0e-07"] in rows
    assert ["128", "2.00", "ms", "-", "torch", "4.00", "ms", "2.00", "2.0e-07"] in rows
    assert "network, one inference in each bucket: 3.00 ms (untuned -, torch 4.90 ms)" in printed


def test_a_bucket_that_is_slower_is_said_though_the_sum_is_not(result):
    assert result.network.slower() == (
        "in bucket 64 the network is slower than torch: 1 ms against 900 µs, 0.90 times its speed"
    )
    assert attrs.evolve(result.network, buckets=result.network.buckets[1:]).slower() is None


def test_each_bucket_is_held_against_what_runs_in_its_own_precision(result):
    rival = NetworkResult.Rival(
        asked="int8", precision="int8", seconds=8e-4, max_relative_error=0.01
    )
    bucket = attrs.evolve(
        result.network.buckets[0], precisions=("int8",), rivals_reduced={"onnxruntime int8": rival}
    )
    assert attrs.evolve(result.network, buckets=(bucket,)).slower() == (
        "in bucket 64 the network is slower than onnxruntime int8: 1 ms against 800 µs, "
        "0.80 times its speed"
    )


def test_a_requirement_holds_for_each_bucket(result):
    words = "times the speed of the fastest rival"
    result = attrs.evolve(result, operators=())
    missed = {
        ratio: attrs.evolve(result, require=Requirement(network_ratio=ratio)).missed
        for ratio in (0.85, 1.0, 2.0)
    }
    assert missed == {
        0.85: [],
        1.0: [f"network, bucket 64: 0.900 instead of 1 {words}"],
        2.0: [f"network: {0.0049 / 0.003:.3f} instead of 2 {words}"],
    }


def test_buckets_that_were_not_timed_have_no_ratio(capsys):
    network = NetworkResult(
        max_relative_error=2e-7,
        folder="network",
        buckets=(NetworkResult.Bucket.from_json(_row("64", None)),),
    )
    print_network(network)
    assert ["64", "-", "-", "-", "-", "2.0e-07"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    assert network.slower() is None
