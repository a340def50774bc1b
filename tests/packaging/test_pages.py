"""What the pages of docs say is so: their files run, their commands parse, their messages exist.

A fenced block whose first line is ``# NAME.EXTENSION`` is that file, in a folder of its page.
"""

import ast
import importlib
import json
import re
import shlex
import sys

import click
import numpy as np
import pytest
from chameleon_cli._json_schema.document import pipeline_schema
from chameleon_cli._main import chameleon, run
from chameleon_cli._plugins import command as plugins
from chameleon_core._errors import ExitCode
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import load_pipeline
from doc_pages import ROOT, blocks, commands_of
from synthetic import run_synthetic, synthetic_document

NAMED = re.compile(r"# ([\w/]+\.\w+)\n")


def pages():
    folder = ROOT / "docs"
    reference = folder / "reference"
    result = [ROOT / "README.md", *ROOT.glob("packages/*/README.md"), *folder.rglob("*.md")]
    return [file for file in sorted(result) if reference not in file.parents]


def written_pages():
    """The pages that say how figures were made, too."""
    return [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


def files_of(page, folder):
    """Write the named blocks of a page into a folder; returns the names."""
    names = []
    for _, text in blocks(ROOT / "docs" / page):
        head = NAMED.match(text)
        if head is not None:
            file = folder / head[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            names.append(head[1])
    return names


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the files of a page, importable as long as the test lasts."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(page):
        return tmp_path, files_of(page, tmp_path)

    yield write
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


def parsed(words):
    """Let click read a command line as far as options and arguments, whose files need not exist."""
    command, context = chameleon, click.Context(chameleon, info_name="chameleon")
    while True:
        rest = list(words)
        if command is plugins and words[:1] and words[0] not in plugins.commands:
            rest = ["list", *rest]  # as the group itself reads its arguments
        _, words, _ = command.make_parser(context).parse_args(rest)
        if not isinstance(command, click.Group):
            return
        name, command, words = command.resolve_command(context, list(words))
        context = click.Context(command, parent=context, info_name=name)


@pytest.mark.parametrize("file", pages(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_command_that_is_shown_exists_with_its_options(file):
    for words in commands_of(file):
        try:
            parsed(words)
        except click.UsageError as error:
            pytest.fail(f"chameleon {shlex.join(words)}: {error.format_message()}")


# These measure nothing, and need no more than the files of their page.
QUICK = {"cpu", "env", "init", "plugins", "schema", "space", "validate"}


@pytest.mark.parametrize(
    "page",
    [f"tutorials/{name}.md" for name in ("operator", "instruction", "remote")]
    + ["quickstart.md", "command-line.md", "troubleshooting.md"],
)
def test_quick_commands_of_a_page_work_one_after_another(page, written, monkeypatch, capsys):
    folder, _ = written(page)
    monkeypatch.chdir(folder)
    shown = [words for words in commands_of(ROOT / "docs" / page) if words[0] in QUICK]
    assert shown
    for words in shown:
        assert run(words) == ExitCode.OK, (words, capsys.readouterr().err)


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    ["quickstart.md", "command-line.md", "tutorials/operator.md", "tutorials/network.md"],
)
def test_commands_of_a_page_tune_and_show_what_they_tuned(page, written, monkeypatch, capsys):
    folder, _ = written(page)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CHAMELEON_RECORDS", "none")
    little = ("--set", "budget.measurements=2", "--set", "baselines=[]")
    shown = [words for words in commands_of(ROOT / "docs" / page) if "examples/" not in words[1]]
    assert any(words[0] == "run" for words in shown)
    for words in shown:
        more = little if words[0] == "run" else ()
        assert run([*words, *more]) == ExitCode.OK, (words, capsys.readouterr().err)


PATH = re.compile(r"(?<![\w/.-])((?:benchmarks|tools|examples|tests|packages)/[\w./-]*\w)")
SCRIPT = re.compile(r"python(?:3\.11)? ((?:benchmarks|tools)/\S+\.py)([^`\n|#]*)")


def test_files_of_the_repository_that_pages_name_are_there():
    named = {(file, name) for file in written_pages() for name in PATH.findall(file.read_text())}
    assert len(named) > 50
    assert {(file, name) for file, name in named if not (ROOT / name).exists()} == set()


def test_options_of_the_scripts_that_pages_show_are_theirs():
    shown = {
        (file.name, script, option)
        for file in written_pages()
        for script, rest in SCRIPT.findall(file.read_text().replace("\\\n", " "))
        for option in re.findall(r"(?<!\S)--[\w-]+", rest)
    }
    assert len(shown) > 20
    wrong = {(page, script, option) for page, script, option in shown if not takes(script, option)}
    assert wrong == set()


def takes(script, option):
    """Whether a script, or a module beside it that it imports, has an option."""
    file = ROOT / script
    imported = re.findall(
        r"^(?:from|import) (?:benchmarks\.)?(\w+)", file.read_text(), re.MULTILINE
    )
    files = [file, *(file.with_name(f"{name}.py") for name in imported)]
    return any(f'"{option}"' in one.read_text() for one in files if one.exists())


def test_commands_are_found_and_wrong_ones_refused():
    result = list(commands_of(ROOT / "docs" / "quickstart.md"))
    assert ["validate", "conv.yaml"] in result
    assert ["run", "examples/quickstart.yaml"] in result
    for words in (["validat", "x"], ["run", "x", "--frehs"], ["records", "no-such"]):
        with pytest.raises(click.UsageError):
            parsed(words)


def test_the_page_of_the_command_line_lists_commands_and_exit_codes():
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| .*\|$", text, re.MULTILINE))
    for name in chameleon.list_commands(click.Context(chameleon)):
        assert re.search(rf"`(chameleon )?{name}\b", rows), name
    assert set(map(int, re.findall(r"^\| (\d+) \|", text, re.MULTILINE))) == set(ExitCode)


def defaults_of_options():
    """The defaults of every option of a stage or a section, by the option's name."""
    schema = pipeline_schema()
    collected = {}
    for row in [*schema["$defs"].values(), *schema["properties"].values()]:
        for form in [row, *row.get("anyOf", [])]:
            for name, about in form.get("properties", {}).items():
                collected.setdefault(name, []).append(about.get("default"))
    return collected


@pytest.mark.parametrize("page", ["networks.md", "devices.md", "precision.md"])
def test_tables_of_options_are_true(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    tables = re.findall(r"^\| ((?:option|key)\b.*)\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert tables
    known = defaults_of_options()
    for head, rows in tables:
        for row in rows.splitlines():
            first, second = row.strip("| ").split(" | ")[:2]
            names = [name.partition(":")[0] for name in re.findall(r"`([^`]+)`", first)]
            assert set(names) <= set(known), first
            if "default" in head:
                for name, shown in zip(names, second.replace("`", "").split(", "), strict=True):
                    assert shown in {json.dumps(item).strip('"') for item in known[name]}, name


@pytest.mark.parametrize(
    "page",
    ["quickstart.md", "tutorials/operator.md", "tutorials/network.md", "tutorials/remote.md"],
)
def test_pipelines_of_tutorials_validate(page, written):
    folder, names = written(page)
    pipelines = [name for name in names if name.endswith(".yaml")]
    assert pipelines
    for name in pipelines:
        assert load_pipeline(folder / name).model.name


def test_the_operator_of_the_tutorial_has_a_space_and_a_reference(written):
    folder, _ = written("tutorials/operator.md")
    pipeline = load_pipeline(folder / "scaled.yaml")
    source = TaskSource(pipeline)
    tasks = source.tasks(source.target())
    (space,) = source.spaces(tasks)
    assert len(space.first_guesses)
    module = importlib.import_module("scaled")
    data, weights = np.full((2, 3), -1.0), np.eye(3)
    assert not module.expected(data, weights).any()
    assert (module.expected(-data, weights) == 0.5).all()


def test_the_network_of_the_tutorial_answers(written):
    written("tutorials/network.md")
    network, inputs = importlib.import_module("net").make()
    assert tuple(network(*inputs).shape) == (1, 10)


def test_the_explorer_of_the_tutorial_runs_and_conforms(written, tmp_path):
    written("tutorials/explorer.md")
    plugin = importlib.import_module("nearby.hooks")
    document = synthetic_document(tmp_path / "run", explorer="nearby")
    result = run_synthetic(document, plugin)
    assert all(operator.tuned_seconds for operator in result.operators)
    importlib.import_module("test_nearby").test_nearby_conforms()


def texts_of_the_code():
    """Every text in modules that raise errors, with an ellipsis for what it fills in."""
    sources = (file.read_text("utf-8") for file in ROOT.glob("packages/*/src/**/*.py"))
    for source in sources:
        if "Error(" not in source and "self.say(" not in source and "Problem(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(value, "value", "") for value in node.values)
                yield "…".join(part if isinstance(part, str) else "" for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.full
def test_messages_of_troubleshooting_are_those_of_the_code():
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    assert len(headings) > 20
    said = list(texts_of_the_code())
    for heading in headings:
        pattern = re.compile(".*".join(map(re.escape, heading.split("…"))), re.DOTALL)
        assert any(pattern.search(row) for row in said), heading


@pytest.mark.parametrize(("page", "least"), [("papers.md", 20), ("miniature.md", 8)])
def test_modules_of_how_it_works_are_there(page, least):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(chameleon_\w+(?:/[\w.]+)+)`", text))
    assert len(named) > least
    for path in named:
        assert list(ROOT.glob(f"packages/*/src/{path}")), path
