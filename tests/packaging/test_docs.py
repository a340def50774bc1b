"""What README and docs show works as it stands there."""

import importlib
import itertools
import json
import re
import sys

import pytest
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode
from chameleon_core._plugins.kinds import KINDS
from chameleon_testing.suites.base import outcomes
from synthetic import run_synthetic, synthetic_document

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def blocks(file, language):
    return [text for result, text in FENCE.findall(file.read_text()) if result == language]


def anchors(file):
    """Names that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", file.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_relative_links_lead_somewhere(files):
    for file in files:
        if file.suffix == ".md":
            for link, anchor in LINK.findall(file.read_text()):
                page = file.parent / link if link else file
                assert page.exists(), f"{file}: {link}"
                assert not anchor or anchor in anchors(page), f"{file}: {link}#{anchor}"


def test_the_pipeline_of_readme_and_a_mistake_in_it(root, tmp_path, monkeypatch, capsys):
    (error,) = (text for text in blocks(root / "README.md", "text") if "did you mean" in text)
    (shown,) = blocks(root / "README.md", "yaml")
    assert "scheduler: gradient" in shown
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.yaml").write_text(shown)
    assert run(["validate", "pipeline.yaml"]) == ExitCode.OK
    (tmp_path / "pipeline.yaml").write_text(shown.replace("scheduler: gra", "scheduler: gar"))
    capsys.readouterr()
    assert run(["validate", "pipeline.yaml"]) == ExitCode.USAGE
    printed = capsys.readouterr().err.splitlines()[0]
    assert printed == error.strip()


def test_the_python_of_readme_imports_what_there_is(root):
    for text in blocks(root / "README.md", "python"):
        imported = [line for line in text.splitlines() if line.startswith(("import", "from"))]
        assert imported
        exec("\n".join(imported), {})  # noqa: S102 - our own README


def test_docs_list_every_kind_of_plugin(root):
    text = (root / "docs" / "plugins.md").read_text()
    rows = re.findall(r"^\| `(chameleon_\w+)` \| (.*?) \| (.*?) ?\| ", text, re.MULTILINE)
    called = {hook: (contract.strip("`"), call.strip("`")) for hook, contract, call in rows}
    assert called.keys() == {kind.hook for kind in KINDS.values()}
    for kind in KINDS.values():
        if kind.contract is not None:
            contract = kind.contract.replace(":", ".").removeprefix("chameleon_core.")
            assert called[kind.hook] == (contract, f"Class({', '.join(kind.arguments)})")


def test_docs_name_all_that_a_stage_may_ask_of_its_space(root, capsys):
    text = (root / "docs" / "plugins.md").read_text()
    (example,) = (one for one in blocks(root / "docs" / "plugins.md", "python") if "crossed" in one)
    names = {}
    exec(example, names)  # noqa: S102 - our own documentation
    assert "'tile'" in capsys.readouterr().out
    assert len(names["children"]) > 1
    section = text.partition("## Design spaces")[2].partition("\n## ")[0]
    first = (row.split("|")[1] for row in section.splitlines() if row.startswith("| `"))
    document = {name for cell in first for name in re.findall(r"`(\w+)", cell)}
    assert document == {name for name in dir(names["space"]) if not name.startswith("_")}


def test_the_operator_of_the_docs_is_the_example_s(root):
    folder = root / "examples" / "gram_matrix" / "src"
    shown = set()
    for text in blocks(root / "docs" / "plugins.md", "python"):
        head, _, code = text.partition("\n")
        if head.startswith("# gram_matrix/"):
            file = folder / head.removeprefix("# ")
            _, _, whole = file.read_text().partition('"""\n\n')
            assert code == whole
            shown.add(file)
    assert shown == {file for file in folder.rglob("*.py") if file.name != "__init__.py"}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The package that docs/plugins.md begins with, as `init --plugin` writes it."""
    monkeypatch.chdir(tmp_path)
    assert run(["init", "--plugin", "explorer", "my-explorer"]) == ExitCode.OK
    monkeypatch.syspath_prepend(tmp_path / "my-explorer" / "src")
    yield tmp_path / "my-explorer"
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_explorer"]:
        del sys.modules[name]


def test_the_plugin_of_the_docs_is_what_the_command_writes(root, plugin):
    shown = set()
    for text in blocks(root / "docs" / "plugins.md", "python"):
        head, _, code = text.partition("\n")
        if head.startswith("# my_explorer/"):
            file = plugin / "src" / head.removeprefix("# ")
            _, _, whole = file.read_text().partition('"""\n\n')
            assert code == whole
            shown.add(file.name)
    assert shown == {"hooks.py", "options.py", "explorer.py"}
    assert (plugin / "pyproject.toml").read_text() in blocks(root / "docs" / "plugins.md", "toml")
    (commands,) = blocks(root / "docs" / "plugins.md", "sh")
    assert commands.startswith("chameleon init --plugin explorer my-explorer\n")


def test_the_plugin_of_the_docs_runs_and_conforms(root, plugin, tmp_path):
    text = (root / "docs" / "plugins.md").read_text()
    explorers = re.findall(r"`explorer: ([\w-]+)`|`explorer: (\{.*?\})`", text)
    assert len(explorers) == 2
    hooks = importlib.import_module("my_explorer.hooks")
    for number, written in enumerate(itertools.chain.from_iterable(explorers)):
        if not written:
            continue
        value = written
        if written.startswith("{"):
            value = json.loads(re.sub(r"([a-z][\w-]*)", r'"\1"', written))
        document = synthetic_document(tmp_path / f"run{number}", explorer=value)
        result = run_synthetic(document, hooks)
        assert all(operator.tuned_seconds for operator in result.operators)
    shown = blocks(root / "docs" / "plugins.md", "python")
    (check,) = (row for row in shown if "class Test" in row)
    names = {}
    exec(check, names)  # noqa: S102 - our own documentation
    answer = list(outcomes(names["TestMyExplorer"], {}))
    assert answer
    assert not [row for row in answer if row.failure or row.skipped]


def test_docs_list_every_conformance_suite(root):
    text = (root / "docs" / "plugins.md").read_text()
    for kind in KINDS.values():
        assert kind.conformance.partition(":")[2] in text
