"""README shows the outputs of runs as `tools/readme.py` writes them."""

import re

import pytest
import readme

PAGE = readme.README.read_text(encoding="utf-8")


def test_folders_of_a_machine_and_the_middle_of_a_long_output_are_left_out():
    output = "The result is in /a/b/runs/x.\n\nreport: file:///a/b/runs/x/report.html\n"
    assert readme.shown(output) == [
        *("The result is in runs/x.", "", "report: file://.../runs/x/report.html")
    ]
    lines = readme.shown("".join(f"{number}\n" for number in range(40)))
    assert lines == ["0", "1", "2", "...", "37", "38", "39"]


@pytest.mark.parametrize("pipeline", readme.PIPELINES)
def test_the_output_below_a_command_alone_is_replaced(pipeline):
    page = readme.written(PAGE, pipeline, ["one", "", "two"])
    start = page.index(f"run {pipeline}")
    assert page[start:].split("```text\n")[1].startswith("one\n\ntwo\n```")
    outside = [re.sub(r"```text\n.*?```", "", text, flags=re.DOTALL) for text in (page, PAGE)]
    assert outside[0] == outside[1]
    other = next(one for one in readme.PIPELINES if one != pipeline)
    assert PAGE[PAGE.index(f"run {other}") :].split("```")[2] in page


def test_a_page_without_the_command_is_refused():
    with pytest.raises(SystemExit, match="no output below"):
        readme.written(PAGE, "examples/other.yaml", ["one"])
