"""The trees of who calls whom in docs/architecture.md are those that the code draws."""

import pytest
import ways

TITLES = {"A candidate's way": ways.candidate_way, "A network's way": ways.network_way}


def test_a_way_names_folders_below_who_enters_them_first(monkeypatch):
    folders = {"outer": "chameleon_a.x", "inner": "chameleon_b.y", "again": "chameleon_a.x"}
    monkeypatch.setattr(ways, "_folder", lambda frame: folders.get(frame.f_code.co_name))

    def again():
        return 1

    def inner():
        return again()

    def outer():
        return inner()

    way = ways.Way()
    way.watch(outer)
    assert [line.split()[0] for line in way.lines()] == ["chameleon_a/x", "chameleon_b/y"]
    assert way.lines()[1].startswith("  chameleon_b/y ")


def test_the_tree_below_its_heading_alone_is_replaced():
    page = "# A\n\n## One\n\nText.\n\n```text\nold\n```\n\n## Two\n\n```text\nother\n```\n"
    assert ways.written(page, "One", ["new"]) == page.replace("old", "new")
    assert ways.written(page, "Two", ["new"]) == page.replace("other", "new")


@pytest.mark.parametrize("title", TITLES)
def test_the_page_has_a_tree_for_each_way(title):
    page = ways.PAGE.read_text(encoding="utf-8")
    assert ways.written(page, title, ["new"]) != page


@pytest.mark.long
@pytest.mark.parametrize("title", TITLES)
def test_the_page_shows_what_the_code_does(title, tmp_path):
    pytest.importorskip("torch")
    page = ways.PAGE.read_text(encoding="utf-8")
    assert ways.written(page, title, ways.drawn(TITLES[title], tmp_path)) == page


def test_an_empty_tree_is_filled():
    page = "# A\n\n## One\n\n```text\n```\n\n## Two\n\n```text\n```\n"
    assert ways.written(page, "One", ["new"]) == page.replace("text\n", "text\nnew\n", 1)
