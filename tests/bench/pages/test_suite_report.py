"""The report of a synthetic suite: its numbers, its JSON, its page, its sheets."""

import csv
import json
import re

import pytest
from chameleon_bench._cells.execute import results
from chameleon_bench._pages.suite_report import printed, report_of, write_report
from chameleon_core._measurement import Measurement

from ..conftest import loaded  # noqa: TID252 - tests are no package

SUITE = """\
title: Small & large
pipelines:
  small: {budget: {batch_size: 4}}
  large: {budget: {batch_size: 16}}
  other: {rival: synthetic}
tasks:
  - model: {synthetic: {operators: [[9, 11, 7]], failing: 10}}
  - {name: two, model: {synthetic: {operators: [[12, 9], [5, 5, 5]]}}}
  - {name: bad, model: {synthetic: {operators: []}}}
seeds: 4
budget: {measurements: 64}
runner: synthetic-replay
"""


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory):
    """The suite, its results and its report, only to be read."""
    suite = loaded(tmp_path_factory.mktemp("suite"), SUITE)
    run(suite)
    ended = results(suite)
    return suite, ended, report_of(suite, ended)


def test_the_whole_report(finished):
    suite, ended, report = finished
    assert report["tasks"] == ["synthetic", "two/op0", "two/op1", "bad"]
    assert report["cells"] == {"all": 36, "ended": 36, "failed": 12}
    rows = {(row["pipeline"], row["task"]): row for row in report["results"]}
    row = rows["small", "synthetic"]
    assert row["best_known_is_exhaustive"]
    assert row["best_known_seconds"] == pytest.approx(1e-3)
    assert set(row["measurements_to"]) == set(row["seconds_to"]) == {"90", "95", "99"}
    assert set(row["measurements_to"]["95"]) == {"median", "low", "high", "reached", "of"}
    assert set(row["quality_at"]) == {"64", "128", "256", "512"}
    assert row["quality_at"]["64"] == row["final_quality"]
    assert row["quality_at"]["128"] is None  # beyond the budget
    assert rows["small", "bad"]["seeds"] == 0
    assert len(rows["small", "bad"]["failed_cells"]) == 4
    # By hand: the synthetic rival is at 1/4 of the best speed, then at the best, after 64.
    other = rows["other", "synthetic"]
    assert other["measurements_to"]["95"]["median"] == 64
    assert other["seconds_to"]["95"]["median"] == 2.0

    shown = printed(report)
    assert "curves" not in shown
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown

    files = {file.name: file.read_text() for file in write_report(suite, ended, report)}
    assert json.loads(files["report.json"])["curves"]
    cells = list(csv.DictReader(files["cells.csv"].splitlines()))
    assert len(cells) == 3 * 4 * 4
    mine = next(row for row in cells if (row["pipeline"], row["task"]) == ("small", "synthetic"))
    counts = {origin: int(mine[f"from_{origin}"]) for origin in Measurement.Origin}
    assert sum(counts.values()) == int(mine["measurements"]) == 64
    assert {cell["from_fallback"] for cell in cells if cell["pipeline"] == "other"} == {""}
    assert row["fallback_share"]["low"] <= counts["fallback"] / 64 <= 1
    assert other["fallback_share"] is None, "a rival has no stages"
    summary = list(csv.DictReader(files["summary.csv"].splitlines()))
    assert {(cell["pipeline"], cell["task"]) for cell in summary} == set(rows)

    page = files["report.html"]
    assert "Small &amp; large" in page
    figures = re.findall(r'<figure data-plot="(\w+)" data-of="([^"]+)"', page)
    assert [key for key, task in figures if task == "two/op1"] == [
        "quality_by_measurements",
        "quality_by_seconds",
        "quality_at_budgets",
        "seconds",
    ]
    assert {task for _, task in figures} == {"synthetic", "two/op0", "two/op1"}
    # Nothing is loaded from elsewhere.
    assert not re.search(
        r"<(link|img|iframe|object)\b[^>]*>|<script[^>]*src", page.split("<script")[0]
    )
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', page.split("<script")[0]) == []
    assert "comes first" in page
    # 64 measurements were asked for: there is no column of 128.
    assert "<th scope=col>64</th><th scope=col>end</th>" in page
    assert "batch_size: 16" in page


def test_a_report_of_what_has_ended_so_far(load):
    suite = load(SUITE)
    report = report_of(suite, results(suite))
    assert report["results"] == report["tests"] == []
    assert report["cells"]["ended"] == 0
    assert any(file.name == "report.html" for file in write_report(suite, {}, report))


def test_pipelines_are_paired_by_seed(finished):
    *_, report = finished
    tests = [t for t in report["tests"] if t["metric"] == "measurements_to_95"]
    assert {(t["first"], t["second"]) for t in tests} == {
        ("small", "large"),
        ("small", "other"),
        ("large", "other"),
    }
    assert all(t["p_holm"] is None or t["p_holm"] >= t["p"] for t in tests)
    chase = next(
        cell
        for cell in report["catching_up"]
        if (cell["pipeline"], cell["reaches"], cell["task"]) == ("small", "other", "two/op1")
    )
    assert 0 < chase["share_of_measurements"]["median"] <= 1
