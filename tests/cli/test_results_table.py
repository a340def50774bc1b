"""Tables for people, on a narrow terminal and in a pipe."""

from __future__ import annotations

import io

import pytest
from chameleon_cli.results_table import (
    OPERATOR_HEADER,
    duration,
    operator_legend,
    operator_rows,
    print_table,
)
from chameleon_core.loop.end.result import OperatorResult, VariantResult


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
    assert duration(seconds) == text


def test_numbers_stay_whole_in_eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    file = Terminal()
    long = "a_name_that_is_longer_than_its_column"
    print_table(OPERATOR_HEADER, operator_rows([operator(long), operator("fc")]), file=file)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line.split("  ")[0].strip() for line in lines[1:-1]) == long
    assert lines[-1].split("  ")[0] == "fc"
    assert " ".join(lines[-1].split()) == "fc 51.2 ms 1.23 ms 1.50 ms 1.216 243.1 64 0.0"


def test_the_legend_says_which_way_the_ratio_goes():
    assert "onednn" in operator_legend([operator("fc")])
    assert "vendor / tuned" in operator_legend([operator("fc")])
    assert not operator_legend([])
