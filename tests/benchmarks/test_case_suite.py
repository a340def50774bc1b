"""Outcomes of cases in a child process, and what is made of them."""

import json
import os
from pathlib import Path

import case_suite
import pytest
from chameleon_core._errors import ChameleonError

SUITE = "some_suite:SomeSuite"
KINDS = {
    "right": "right",
    "remark": "right",
    "wrong": "wrong",
    "refused": "refused",
    "error": "error",
    "crashed": "crashed",
    "garbled": "crashed",
    "late": "timed out",
}


@pytest.fixture(name="run")
def _run(monkeypatch, tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return case_suite.main(SUITE, ["--out", "out.jsonl", "--seconds", "240", *words])

    return run


@pytest.mark.full
def test_every_case_has_an_outcome_whatever_becomes_of_the_others(run, capsys):
    assert run("--seconds", "8") == 1
    lines = Path("out.jsonl").read_text(encoding="utf-8").splitlines()
    outcomes = {one["case"]: one for one in map(json.loads, lines)}
    assert {case: one["kind"] for case, one in outcomes.items()} == KINDS
    assert outcomes["remark"]["reason"] == "with a remark"
    assert outcomes["error"]["reason"].startswith("ZeroDivisionError at some_suite.py:")
    assert "SIGABRT" in outcomes["crashed"]["reason"]
    assert outcomes["garbled"]["reason"].startswith("status 0")
    assert outcomes["late"]["reason"] == "it took over 8 seconds"
    out = capsys.readouterr().out
    assert "| good | 2 | 2 | 0 |" in out
    assert "1 refused: input '...' is N numbers (refused)" in out


def test_a_suite_that_does_not_start_is_an_error(run):
    with pytest.raises(RuntimeError, match=r"does not start: .*(\n.*)*no attribute 'Missing'"):
        next(case_suite.outcomes("some_suite:Missing", (), ["right"], seconds=240))


def test_a_run_goes_on_where_an_earlier_one_ended(run, capsys):
    assert run("--only", "right|refused") == 0
    capsys.readouterr()
    assert run("--only", "right|refused|remark") == 0
    assert "[1/1] remark: right" in capsys.readouterr().err
    assert run("--only", "right|refused|remark", "--again", "refused") == 0
    assert "[1/1] refused: refused" in capsys.readouterr().err


def test_a_line_that_is_cut_off_counts_for_nothing(run, capsys):
    assert run("--only", "right") == 0
    with Path("out.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"case": "remark", "kind": "wr')
    capsys.readouterr()
    assert run("--only", "right") == 0
    assert capsys.readouterr().err == ""
    assert run("--only", "remark") == 0
    assert run("--only", "right|remark") == 0
    assert len(Path("out.jsonl").read_text(encoding="utf-8").splitlines()) == 2


def test_a_fraction_of_the_cases_is_the_same_each_time():
    names = [f"case {number}" for number in range(1000)]
    drawn = [name for name in names if case_suite.is_drawn(name, 0.25)]
    assert 200 < len(drawn) < 300
    assert set(drawn) < {name for name in names if case_suite.is_drawn(name, 0.5)}


@pytest.mark.full
def test_the_table_is_put_into_a_page(run):
    page = Path("page.md")
    page.write_text("# Page\n<!-- out -->\nold\n<!-- end -->\nmore\n", encoding="utf-8")
    with pytest.raises(ChameleonError, match="has no comment 'some_suite'"):
        run("--only", "right", "--page", str(page))
    page.write_text(page.read_text(encoding="utf-8").replace("out", "some_suite"), encoding="utf-8")
    assert run("--only", "right", "--page", str(page)) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Page\n<!-- some_suite -->\n\n| | cases |")
    assert text.endswith("<!-- end -->\nmore\n")
    assert "old" not in text
