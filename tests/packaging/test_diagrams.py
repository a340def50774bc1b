"""The diagrams of docs/architecture.md are those that its texts give."""

import re
from html import unescape

import diagrams
import pytest

PAGE = diagrams.PAGE.read_text(encoding="utf-8")
DRAWINGS = diagrams.drawings(PAGE)


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_file_shows_the_text(name):
    assert (diagrams.IMAGES / name).read_text(encoding="utf-8") == DRAWINGS[name], (
        "`python tools/diagrams.py` draws it"
    )
    assert f"](images/{name})" in PAGE


def words(drawing):
    return [unescape(found) for found in re.findall(r"<text[^>]*>(.*?)</text>", drawing)]


def test_a_tree_joins_a_folder_to_the_one_that_called_it():
    drawing = diagrams.tree(["a/b  f", "  c/d  g", "    e  h", "  <x>  k"], "One")
    assert words(drawing) == ["a/b", "f", "c/d", "g", "e", "h", "<x>", "k"]
    assert drawing.count("<path") == 3
    starts = [line.split('"')[1].split("V")[0] for line in drawing.splitlines() if "<path" in line]
    assert starts[0] == starts[2] != starts[1], "both are below the first"


def test_the_loop_of_the_pipeline_goes_back_to_its_first_stage():
    lines = ["model   reader   in  -> out", "loop:   walker   walks", "        learns", "end   x"]
    drawing = diagrams.pipeline(lines, "Some stages")
    shown = ["model", "reader", "in → out", "loop", "walker", "walks", "learns", "end", "x"]
    assert words(drawing) == shown
    back = drawing.splitlines()[-2]
    assert "V" in back
    rows = [diagrams.LEFT + diagrams.ROW * row + diagrams.BOX // 2 for row in (2, 1)]
    assert f" {rows[0]}H" in back
    assert f"V{rows[1]}H" in back
