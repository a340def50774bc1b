"""Tables for people, on a narrow terminal and in a pipe."""

import io

import attrs
import pytest
from chameleon_cli import _result_rows as result_rows
from chameleon_cli._results_table import print_network, print_table
from chameleon_core._loop.end.result import OperatorResult, VariantResult
from chameleon_core._network_result import NetworkResult
from chameleon_core._run_view import RunView, TimeSource


class Terminal(io.StringIO):
    def isatty(self):
        return True


def operator(name):
    times = {"tuned": 1.234e-3, "untuned": 0.0512, "onednn": 1.5e-3}
    return OperatorResult(
        name=name,
        task={"flop": 3e8},
        space="template",
        fingerprint="",
        measurements=64,
        variants=tuple(
            VariantResult(name=contender, vendor=contender == "onednn", seconds=seconds)
            for contender, seconds in times.items()
        ),
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (1.5, "1.50 s"),
        (0.9996, "1.00 s"),
        (0.0512, "51.2 ms"),
        (1.6249e-4, "162 µs"),
        (9.996e-6, "10.0 µs"),
        (5e-10, "0.500 ns"),
        (1234.5, "1230 s"),
    ],
)
def test_a_duration_has_three_digits_and_a_unit(seconds, text):
    assert result_rows.duration(seconds) == text


def test_numbers_stay_whole_in_eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    file = Terminal()
    long = "a_name_that_is_longer_than_its_column"
    print_table(
        result_rows.OPERATOR_HEADER,
        result_rows.operator_rows([operator(long), operator("fc")]),
        file=file,
    )
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line.split("  ")[0].strip() for line in lines[1:-1]) == long
    assert lines[-1].split("  ")[0] == "fc"
    assert " ".join(lines[-1].split()) == "fc 51.2 ms 1.23 ms 1.50 ms 1.216 243.1 64 0.0"


def test_the_legend_explains_the_columns_of_the_rows():
    legend = result_rows.operator_legend([operator("fc")])
    assert "onednn" in legend
    assert "vendor / tuned" in legend
    assert "Winograd" in legend
    assert "untuned: " in legend
    assert not result_rows.operator_legend([])


INT8 = NetworkResult(
    latency_seconds=0.004,
    untuned_seconds=0.1,
    max_relative_error=2e-3,
    precision="int8",
    precisions=("int8",),
    rivals={"torch": 0.02},
    rivals_reduced={
        "openvino as it comes": NetworkResult.Rival(
            asked="as-it-comes", precision="bfloat16", seconds=0.002, max_relative_error=3.4e-3
        )
    },
    folder="here",
)


def test_each_rival_in_reduced_precision_has_its_precision_and_error(capsys):
    assert result_rows.rival_table(INT8) == [
        ("the compiled network", "int8", "4.00 ms", "1.00", "2.0e-03"),
        ("torch", "float32", "20.0 ms", "5.00", "-"),
        ("openvino as it comes", "bfloat16", "2.00 ms", "0.50", "3.4e-03"),
    ]
    print_network(INT8)
    printed = capsys.readouterr().out
    assert "".join(result_rows.RIVAL_HEADER).split()[0] in printed
    assert "network, in int8: 4.00 ms (untuned 100 ms)" in printed


def test_what_a_rival_computes_in_by_default_is_in_the_sentence_of_a_network():
    network = attrs.evolve(INT8, precision="float32", precisions=("float32",))
    summary = RunView.Network(
        seconds=0.004, source=TimeSource.COMPARISON, measured=1, operators=1, result=network
    )
    others = "torch 20.0 ms, openvino as it comes in bfloat16 2.00 ms, untuned 100 ms"
    assert result_rows.network_sentence(summary).endswith(f"({others})")


def test_rivals_in_float32_alone_stay_in_the_networks_line():
    network = NetworkResult(
        latency_seconds=0.004, max_relative_error=2e-7, rivals={"torch": 0.02}, folder="here"
    )
    assert result_rows.rival_table(network) == []
    assert "network: 4.00 ms (untuned -, torch 20.0 ms)" in result_rows.network_lines(network)


def test_the_score_of_a_metric_is_beside_the_error():
    network = NetworkResult(
        max_relative_error=0.01, folder="n", score=0.911, score_in_float32=0.9154321
    )
    [line] = result_rows.network_lines(network)
    assert "error 1.0e-02, metric 0.911 (in float32 0.915432)" in line
    assert NetworkResult.from_json(network.to_json()) == network


def test_a_network_that_nothing_verified_is_shown_as_such():
    network = NetworkResult(
        max_relative_error=2e-7,
        folder="here",
        delivered_seconds=3.0,
        reference="untuned",
        unverified="torch cannot: it broke",
    )
    *_, remark, line = result_rows.network_lines(network)
    doubt = "delivered, not verified, since torch cannot: it broke"
    assert remark == f"{doubt}; compared with TVM without tuning"
    assert line.startswith("network: delivered, not verified after 3.0 s")
    summary = RunView.Network(
        seconds=None, source=TimeSource.SEARCH, measured=0, operators=1, result=network
    )
    assert result_rows.network_sentence(summary).endswith(doubt)


def test_each_point_of_the_front_has_a_row_and_the_choice_its_reason(capsys):
    mixed = {"int8": 3, "float32": 2}
    front = (
        NetworkResult.FrontPoint(types={"float32": 5}, seconds=0.005, error=0.0, delivered=False),
        NetworkResult.FrontPoint(types=mixed, seconds=0.004, error=2e-3, delivered=True),
        # without measurements
        NetworkResult.FrontPoint(types=mixed, seconds=0.0, error=2e-3, delivered=False),
    )
    chosen = {"precision_summary": "of 5 operators 3 in int8, 2 in float32", "front": front}
    network = attrs.evolve(INT8, **chosen)
    assert result_rows.front_table(network)[1] == [
        ("float32 5", "5.00 ms", "0.0e+00", ""),
        ("int8 3, float32 2", "4.00 ms", "2.0e-03", "delivered"),
        ("int8 3, float32 2", "-", "2.0e-03", ""),
    ]
    print_network(network)
    printed = capsys.readouterr().out
    assert printed.index("operators in") < printed.index("precision: of 5 operators 3 in int8")
    assert NetworkResult.from_json(network.to_json()) == network
    assert {"front", "precision_summary"}.isdisjoint(NetworkResult().to_json())


def test_front_and_precision_of_each_bucket_name_it(capsys):
    types = {"int8": 5}
    front = (
        NetworkResult.FrontPoint(
            bucket="64", types=types, seconds=0.004, error=2e-3, delivered=True
        ),
    )
    rival = NetworkResult.Rival(asked="int8", precision="int8", seconds=0.003)
    bucket = NetworkResult.Bucket(
        name="64",
        latency_seconds=0.001,
        rivals={"torch": 0.0005},
        rivals_reduced={"torch int8": rival},
        max_relative_error=2e-3,
        precision="int8",
        precisions=("int8",),
    )
    chosen = {"precision_summary": "bucket 64: of 5 operators 5 in int8", "front": front}
    network = attrs.evolve(INT8, **chosen, buckets=(bucket,))
    _, rows = result_rows.front_table(network)
    assert rows == [("64", "int8 5", "4.00 ms", "2.0e-03", "delivered")]
    assert result_rows.bucket_rows(network) == [
        ("64", "1.00 ms", "-", "torch int8 3.00 ms", "3.00", "2.0e-03", "int8")
    ]
    print_network(network)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["bucket", "operators", "in", "seconds", "error"] in lines
    assert [*" ".join(result_rows.BUCKET_HEADER).split(), "precision"] in lines
