"""The reference has a page for everything, and every page says something of what is on it."""

import importlib
import re
import shlex

import click
import language
import pytest
from chameleon_cli._json_schema.document import pipeline_schema
from chameleon_core._plugins.event_hooks import EventHooks
from chameleon_core._plugins.kinds import KINDS
from chameleon_core._plugins.registry import Registry


@pytest.fixture(scope="module")
def reference(root):
    """Imports a module of the extension of Sphinx that writes the reference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "docs" / "_ext")
        yield lambda name: importlib.import_module(f"chameleon_reference.{name}")


@pytest.fixture(scope="module")
def pages(reference):
    """Pages by name, each written when it is first asked for."""
    return Pages(reference("pages").pages())


class Pages(dict):
    def __init__(self, writers):
        super().__init__()
        self.writers = writers

    def __missing__(self, name):
        self[name] = self.writers[name]()
        return self[name]


def headings(page):
    return set(re.findall(r"^## `(.+)`$", page, re.MULTILINE))


def rows(page):
    """The first and the last cell of every row of the page's tables."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {line[0].strip("`"): line[-1] for line in lines}


def test_every_plugin_has_an_entry(pages):
    registry = Registry.default()
    for kind in KINDS:
        if kind != "commands":
            names = {registry.full_name(entry) for entry in registry.entries(kind)}
            assert headings(pages[kind]) == names, kind


def test_every_option_has_a_row_with_its_help(pages):
    definitions = pipeline_schema()["$defs"]
    for name, schema in definitions.items():
        kind, dot, _ = name.partition(".")
        if not dot or "properties" not in schema:
            continue
        result = rows(pages[kind])
        for option, about in schema["properties"].items():
            if option != "name":
                assert option in result, f"{name}: {option}"
                assert about.get("description"), f"{name}: {option} has no help"


def test_every_key_of_an_operator_has_a_row_with_its_help(pages):
    for kind, arguments in Registry.default().classes("operators").items():
        page = pages["operators"].partition(f"## `{kind}`\n")[2].partition("\n## ")[0]
        result = rows(page)
        for field in arguments.__attrs_attrs__:
            assert result[field.alias], f"{kind}: {field.alias} has no help"


def test_every_key_of_a_pipeline_has_a_row(pages):
    assert set(Registry.default().pipeline_keys) <= set(rows(pages["pipeline"]))
    for section in ("budget", "require", "precision", "transform"):
        assert f"## `{section}`" in pages["pipeline"]


def test_every_hook_is_told_of(pages):
    events = {name for name in vars(EventHooks) if name.startswith("chameleon_")}
    assert headings(pages["hooks"]) == {kind.hook for kind in KINDS.values()} | events


def test_every_command_has_an_entry_and_every_option_a_help(pages, reference):
    result = dict(reference("commands").commands())
    assert headings(pages["commands"]) == set(result)
    names = {words.split()[1] for words in result if " " in words}
    assert set(Registry.default().names("commands")) < names
    for words, command in result.items():
        assert command.help, words
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{words}: {option.name}"
                assert f"`{option.opts[-1]}`" in pages["commands"]


def test_every_command_has_an_example_that_it_takes(pages, reference):
    for words, command in reference("commands").commands():
        if words == "chameleon":
            continue
        program, *arguments = shlex.split(command.epilog.removeprefix("Example: "))
        own = words.split()[1:]
        assert [program, *arguments[: len(own)]] == words.split()
        assert command.epilog in command.get_help(click.Context(command, info_name=words))
        assert command.epilog.removeprefix("Example: ") in pages["commands"]
        command.make_context(words, arguments[len(own) :])  # refuses an option that there is not


@pytest.mark.full
def test_help_texts_and_messages_keep_the_rule_of_language(pages):
    faults = [
        f"{name}: {fault}: {sentence.text}"
        for name in pages.writers
        for sentence in language.sentences_of_document(name, pages[name])
        for fault in sentence.faults()
    ]
    assert not faults


def test_every_key_of_a_result_is_explained(reference):
    for title, keys in reference("results").results().items():
        for key, about in keys.items():
            assert about.strip(), f"{title}: {key}"


def test_every_public_name_of_spaces_and_contracts_is_on_a_page(pages, reference):
    python = reference("python")
    for _, _, module in python.SHOWN:
        assert headings(pages[python.page_name(module)]) == set(python.names_of(module))


def test_magnitudes_of_docstrings_are_no_substitutions(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "docs" / "_ext")
        escape = importlib.import_module("chameleon_reference").escape
    lines = ["largest |difference| over |expected|", "a | b"]
    escape(None, "", "", None, None, lines)
    assert lines == [r"largest \|difference\| over \|expected\|", "a | b"]
    lines = ["Method generated by attrs for class X."]
    escape(None, "", "", None, None, lines)
    assert lines == []


def test_no_two_pages_have_one_name(pages):
    listed = re.findall(r"^([\w-]+)$", pages["index"], re.MULTILINE)
    assert sorted(listed) == sorted(name for name in pages.writers if name != "index")


def test_every_page_of_the_folder_is_in_the_site(root, reference, tmp_path):
    """Pages that the start page does not name come after the guides."""
    sources = reference("sources")
    text = (root / "docs" / "index.md").read_text()
    assert text.count(sources.REST) == 1
    (tmp_path / "networks.md").touch()
    (tmp_path / "a-new-guide.md").touch()
    completed = sources.completed(text, tmp_path)
    assert "\nplugins\na-new-guide\n" in completed
    assert completed.count("\nnetworks\n") == 1
    for file in (root / "docs").glob("*/*.md"):
        page = file.relative_to(root / "docs").with_suffix("").as_posix()
        assert f"\n{page}\n" in text or page.startswith("reference/"), page


def test_links_to_folders_are_their_names(root, reference):
    shown = reference("sources").without_folders(
        "[gram](../examples/gram_matrix), [x](../README.md)", root / "docs"
    )
    assert shown == "`examples/gram_matrix`, [x](../README.md)"


def test_every_knob_is_explained(root, reference):
    """Those of templates by their names; those of sketches, which follow loops, by a pattern."""
    text = (root / "docs" / "knobs.md").read_text()
    cells = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    known = [name for cell in cells for name in re.findall(r"`([\w*]+)`", cell)]
    stems = tuple(name.removesuffix("*") for name in known if name.endswith("*"))
    knobs = reference("knobs")
    for example in knobs.EXAMPLES:
        for knob in example.made().knobs:
            sketched = example.space == "sketch" and knob.name.startswith(stems)
            assert knob.name in known or sketched, f"{example.title}: {knob.name}"
    shown = rows(knobs.example_section(knobs.EXAMPLES[0]))
    assert {knob.name for knob in knobs.EXAMPLES[0].made().knobs} == set(shown)
    assert shown["tile_rows"] == "`algorithm` is direct"
