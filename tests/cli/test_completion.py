"""Shells complete commands and options by click's means, without importing any command."""

from pathlib import Path

import pytest
from chameleon_core._errors import ExitCode
from chameleon_core.plugin_api import CommandRecord
from synthetic import plugin_of

DOCS = Path(__file__).parents[2] / "docs"


VANISH = CommandRecord(name="vanish", summary="Cannot be imported.", factory="no_such_module:x")


@pytest.fixture
def complete(chameleon, fakes, install, monkeypatch):
    """What a shell offers for the last of some words: kinds, values and helps, by value."""
    install(fakes.registry(("commands-dist", plugin_of(commands=[VANISH]))))

    def call(*words):
        monkeypatch.setenv("_CHAMELEON_COMPLETE", "zsh_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["chameleon", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        outcome = chameleon()
        assert (outcome.code, outcome.err) == (ExitCode.OK, "")
        lines = iter(outcome.out.splitlines())
        return {value: (kind, said) for kind, value, said in zip(lines, lines, lines, strict=True)}

    return call


def test_commands_are_offered_with_what_they_do(complete):
    assert complete("va") == {
        "validate": ("plain", "Check a pipeline and print it with every default written out."),
        "vanish": ("plain", "Cannot be imported."),
    }
    assert {"run", "init", "status"} <= complete("").keys()


def test_options_and_files_are_offered(complete):
    assert "--log-format" in complete("--l")
    assert {"--dry-run", "--fresh"} <= complete("run", "--").keys()
    assert [kind for kind, _ in complete("run", "p").values()] == ["file"]
    assert "--debug" in complete("no-such-command", "--d"), (
        "a word that is no command is passed over"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_of_the_docs_gives_the_shell_its_script(chameleon, monkeypatch, shell):
    text = (DOCS / "command-line.md").read_text()
    assert f"_CHAMELEON_COMPLETE={shell}_source chameleon" in text
    monkeypatch.setenv("_CHAMELEON_COMPLETE", f"{shell}_source")
    outcome = chameleon()
    assert outcome.code == ExitCode.OK
    assert f"_CHAMELEON_COMPLETE={shell}_complete" in outcome.out
