"""What ``init --plugin`` writes is a plugin that works, whatever its kind is."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode
from chameleon_core._plugins.local import PLUGINS_VARIABLE
from chameleon_core._plugins.registry import Registry
from chameleon_core.plugin_api import KINDS
from chameleon_testing.suites.base import outcomes
from programs import completed


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """What a test gives and imports is gone after it."""
    monkeypatch.setenv(PLUGINS_VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("probe_"):
            del sys.modules[name]
    Registry.default.cache_clear()


def name_of(kind):
    return f"probe-{kind.name.replace('_', '-')}"


def suite_of(folder):
    """The class in a package's tests."""
    file = folder / "tests" / "test_conformance.py"
    spec = importlib.util.spec_from_file_location(f"probe_tests_{folder.name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (result,) = [variable for name, variable in vars(module).items() if name.startswith("Test")]
    return result


@pytest.mark.full
@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_it_passes_its_tests_and_the_check_of_the_command_line(kind, capsys):
    name = name_of(kind)
    assert run(["init", "--plugin", kind.noun, name]) == ExitCode.OK
    check = capsys.readouterr().out.splitlines()[-1].split()
    assert check[:3] == ["chameleon", "plugins", "check"]
    os.chdir(name)
    assert run(["--plugin", ".", *check[1:], "--json"]) == ExitCode.OK
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks[0]["name"] == "record"
    assert not [check for check in checks if check["failure"] or check["skipped"]]
    result = list(outcomes(suite_of(Path.cwd()), {}))
    assert not [row.failure or row.skipped for row in result if row.failure or row.skipped]
    assert len(result) >= 2
    for file in Path.cwd().glob("pipeline.yaml"):
        assert run(["validate", str(file)]) == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plugin", "explorrer", "mine"], "did you mean 'explorer'"),
        (["--plugin", "explorer"], "the plugin has no name"),
        (["--plugin", "explorer", "-mine-"], "No such option"),
        (["--plugin", "explorer", "my explorer"], "no distribution's name"),
        (["--plugin", "explorer", "3rd"], "no name of a module"),
        (["--plugin", "explorer", "numpy"], "which is a module already"),
        (["--plugin", "template", "convolution-cpu", "x", "--force"], "never replaced"),
        (["--plugin", "explorer", "mine", "taken"], "taken exists already"),
        (["pipeline.yaml", "other.yaml"], "is a second one"),
    ],
)
def test_what_cannot_be_written_is_refused_in_a_sentence(arguments, words, capsys, tmp_path):
    (tmp_path / "taken").mkdir()
    assert run(["init", *arguments]) == ExitCode.USAGE
    assert words in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


@pytest.mark.usefixtures("everything")
def test_a_name_of_this_kind_that_is_taken_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdlib_module_names", frozenset())
    assert run(["init", "--plugin", "explorer", "annealing"]) == ExitCode.USAGE
    assert "there is an explorer 'annealing' already, of 'chameleon" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.usefixtures("everything")
def test_an_author_gets_from_nothing_to_a_bench_without_opening_our_source(tmp_path):
    """In a process of its own, as a user's is; the bench is read, and what it would run listed."""

    def chameleon(*arguments, code=0):
        return completed([sys.executable, "-m", "chameleon_cli", *arguments], code, cwd=tmp_path)

    chameleon("init", "--plugin", "explorer", "probe-bench")
    folder = tmp_path / "probe-bench"
    assert len((folder / "src/probe_bench/explorer.py").read_text().splitlines()) <= 30
    values = ("--plugin", folder)
    chameleon("bench", folder / "bench.yaml", "--dry-run", code=2)
    listed = chameleon(*values, "bench", folder / "bench.yaml", "--dry-run").stdout
    assert "probe-bench" in listed
    assert "ppo" in listed
