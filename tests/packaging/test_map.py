"""The map in docs/architecture.md leads to places that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([^|`]+) \| ((?:`[^`]+`(?:, )?)+) \|$",
    (ROOT / "docs" / "architecture.md")
    .read_text(encoding="utf-8")
    .partition("## Map of the code")[2],
    flags=re.MULTILINE,
)


def test_it_has_everyday_changes():
    assert len(ROWS) >= 25
    assert len({what for what, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("what", "where"), ROWS, ids=[what for what, _ in ROWS])
def test_a_change_has_its_place(what, where):
    for path in re.findall(r"`([^`]+)`", where):
        assert list(ROOT.glob(f"packages/*/src/{path}")), f"{what}: there is no {path}"
