"""``chameleon plugins check`` says in sentences what is wrong with a plugin."""

import json
import shlex
from pathlib import Path

import pytest
from chameleon_cli._main import run
from chameleon_cli._options import given_again
from chameleon_cli._plugins import find
from chameleon_core._errors import ExitCode
from chameleon_core._plugins.local import PLUGINS_VARIABLE
from chameleon_core.api import Registry
from chameleon_core.plugin_api import Sampler
from synthetic import SYNTHETIC, plugin_of, record_of


class Broken(Sampler):
    """Returns something that is no array."""

    def __init__(self, options, context):
        pass

    def select(self, candidates, visited, count):
        return None


class Unwelcome(Broken):
    def select(self, candidates, visited, count):
        raise LookupError("nothing here")


PLUGIN = plugin_of(samplers=[record_of(Broken), record_of(Unwelcome)])


@pytest.fixture(autouse=True)
def _installed(install, monkeypatch):
    monkeypatch.setenv("CHAMELEON_DEBUG", "")
    monkeypatch.setenv(PLUGINS_VARIABLE, "")
    install(Registry.from_plugins([PLUGIN, SYNTHETIC]))


def test_a_broken_one_ends_with_a_sentence_and_exit_code_3(capsys):
    assert run(["plugins", "check", "broken"]) == ExitCode.PLUGIN
    printed = capsys.readouterr()
    assert "FAILED  The sampler chooses rows" in printed.out
    assert "configurations are not an array" in printed.out
    assert "2 checks passed" in printed.out or "3 checks passed" in printed.out
    assert "Traceback" not in printed.err


def test_debug_shows_the_traceback_of_what_a_plugin_raises(capsys):
    assert run(["plugins", "check", "unwelcome"]) == ExitCode.PLUGIN
    printed = capsys.readouterr()
    assert "it raises LookupError: nothing here" in printed.out
    assert "--debug" in printed.err
    assert run(["--debug", "plugins", "check", "unwelcome"]) == ExitCode.PLUGIN
    assert "Traceback" in capsys.readouterr().err


def test_a_name_of_several_kinds_has_to_be_told_apart(capsys):
    assert run(["plugins", "check", "synthetic"]) == ExitCode.USAGE
    assert "samplers:synthetic" in capsys.readouterr().err
    assert run(["plugins", "check", "samplers:synthetic", "--json"]) == ExitCode.OK
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], printed["name"], printed["distribution"]) == (
        "samplers",
        "synthetic",
        "in-process",
    )
    assert not [check["failure"] for check in printed["checks"] if check["failure"]]
    assert run(["plugins", "check", "samplers:in-process:broken"]) == ExitCode.PLUGIN


def test_an_unknown_name_says_what_is_alike_and_how_to_give_a_folder(capsys):
    for name in ("nobody", "samplers:nobody", "nobody:synthetic", "brocken"):
        assert run(["plugins", "check", name]) == ExitCode.PLUGIN
        printed = capsys.readouterr().err
        assert name.rpartition("samplers:")[2].partition(":")[0] in printed
    assert "did you mean 'broken'" in printed
    assert "chameleon --plugin FOLDER plugins check brocken" in printed


@pytest.mark.parametrize("kind", ["sampler", "samplers", "Sampler", "cost-model", "cost_models"])
def test_a_kind_may_be_written_in_the_singular(kind, capsys):
    registry = Registry.from_plugins([SYNTHETIC])
    meant = "cost_models" if kind.startswith("cost") else "samplers"
    assert find(registry, f"{kind}:synthetic") == registry.find(meant, "synthetic")
    assert run(["plugins", kind]) == ExitCode.OK
    assert capsys.readouterr().out.startswith(f"{meant}\n")


def test_a_kind_that_there_is_not_is_refused(capsys):
    assert run(["plugins", "samler"]) == ExitCode.USAGE
    assert "there is no kind of plugin 'samler'; did you mean 'sampler'" in capsys.readouterr().err


def test_a_distribution_tells_plugins_of_two_kinds_apart(install, capsys):
    broken = [record_of(Broken)]
    plugins = [("one", plugin_of(samplers=broken)), ("two", plugin_of(explorers=broken))]
    install(Registry.from_plugins(plugins))
    assert run(["plugins", "check", "broken"]) == ExitCode.USAGE
    capsys.readouterr()
    assert run(["plugins", "check", "one:broken", "--json"]) == ExitCode.PLUGIN
    assert json.loads(capsys.readouterr().out)["kind"] == "samplers"


def test_whether_it_draws_is_asked_of_explorers_alone(capsys):
    assert run(["plugins", "check", "broken", "--no-draws"]) == ExitCode.USAGE
    assert "the checks of samplers do not ask" in capsys.readouterr().err
    assert run(["plugins", "check", "explorers:synthetic", "--no-draws"]) == ExitCode.OK


def test_plugins_still_lists_kinds(capsys):
    assert run(["plugins", "samplers"]) == ExitCode.OK
    listed = capsys.readouterr().out
    assert run(["plugins", "list", "samplers"]) == ExitCode.OK
    assert capsys.readouterr().out == listed
    assert "unwelcome" in listed
    assert run(["plugins", "--help"]) == ExitCode.OK
    assert "check" in capsys.readouterr().out


def test_a_run_that_is_continued_gets_the_same_plugins(monkeypatch):
    monkeypatch.setenv(PLUGINS_VARIABLE, "a folder/hooks.py")
    command, _ = given_again("run", Path("p.yaml"), (), None)
    assert shlex.split(command) == ["chameleon", "--plugin", "a folder/hooks.py", "run", "p.yaml"]


def test_a_plugin_that_cannot_be_given_is_a_usage_error(capsys):
    assert run(["--plugin", "no/such.py", "plugins"]) == ExitCode.USAGE
    assert "there is no plugin" in capsys.readouterr().err
