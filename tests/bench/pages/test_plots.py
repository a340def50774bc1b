"""Plots as data: packed for a page, and written as CSV."""

import base64
import csv
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
from chameleon_bench._pages import plots
from chameleon_bench._pages.rendering import bar
from chameleon_bench._pages.run_record import Categories

PUBLISHED = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
"""SHA-256 of ``plotly-basic.min.js`` as the package ``plotly.js-basic-dist-min`` 4.1.1 has it."""

COLUMNS = {
    "seconds": np.array([1.23456789e-6, np.nan, np.inf]),
    "kind": Categories(labels=["a", "b,c"], codes=np.array([1, -1, 0])),
    "drawn": [1, 2, 3],
}


def _plot(subject="", **more):
    values = {"columns": COLUMNS, "hidden": frozenset({"drawn"}), **more}
    return plots.Plot(
        key="key", title="t", about="a", traces=[], layout={}, subject=subject, **values
    )


def _unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_tables_are_packed_once_and_gaps_are_null():
    result = _unpacked(plots.packed([_plot("one"), _plot("two")], "run"))
    assert result["name"] == "run"
    assert [plot["table"] for plot in result["plots"]] == [0, 0]
    assert result["plots"][0]["saved"] == ["seconds", "kind"]
    [table] = result["tables"]
    assert table["seconds"] == [1.23457e-06, None, None]
    assert table["kind"] == {"labels": ["a", "b,c"], "codes": [1, -1, 0]}


def test_a_page_is_the_same_each_time():
    assert plots.packed([_plot()], "run") == plots.packed([_plot()], "run")


def test_plots_of_one_key_share_a_sheet(tmp_path):
    other = _plot("two", columns={"seconds": [0.5], "more": ["x"]}, hidden=frozenset())
    [file] = plots.write_sheets([_plot("one"), other], tmp_path / "new", subject="operator")
    assert file == tmp_path / "new" / "key.csv"
    rows = list(csv.reader(file.read_text().splitlines()))
    assert rows == [
        ["operator", "seconds", "kind", "more"],
        ["one", "1.23456789e-06", "b,c", ""],
        ["one", "", "", ""],
        ["one", "", "a", ""],
        ["two", "0.5", "", "x"],
    ]


def test_plots_of_everything_have_no_column_of_subjects(tmp_path):
    [file] = plots.write_sheets([_plot()], tmp_path, subject="operator")
    assert file.read_text().splitlines()[0] == "seconds,kind"


def test_the_bundle_of_plotly_is_the_published_one_with_its_licence():
    script = gzip.decompress(base64.b64decode(plots.plotly_js()))
    assert hashlib.sha256(script).hexdigest() == PUBLISHED
    beside = Path(plots.__file__).with_name("vendored") / "plotly"
    assert PUBLISHED in (beside / "README.md").read_text("utf-8")
    assert "MIT License" in (beside / "LICENSE").read_text("utf-8")


def test_a_logarithmic_axis_has_room_around_a_single_value():
    low, high = plots.logarithmic("time", [1e-3, 0.0, float("inf"), float("nan")])["range"]
    assert low < -3 < high
    assert "range" not in plots.logarithmic("time", [float("inf")])


def test_a_bar_that_is_too_long_ends_with_an_arrow():
    assert "width:50.0%" in bar({"a": 1.0}, 2.0)
    assert "→" not in bar({"a": 1.0, "b": 1.0}, 2.0)
    cut = bar({"a": 6.0, "b": 2.0}, 2.0)
    assert "→" in cut
    assert "width:75.0%" in cut
    assert bar({"a": 0.0}, 0.0).count("width:0.0%") == 1
