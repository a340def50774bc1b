"""What the commands print, and the codes they end with."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import structlog
from chameleon_cli import _env as env
from chameleon_cli._main import main
from chameleon_core._errors import (
    ChameleonError,
    ConfigError,
    ExitCode,
    PluginError,
    RunFolderError,
    TargetError,
)
from chameleon_core._pipeline.load import from_dict, load_pipeline
from chameleon_core._plugins.kinds import STAGES
from chameleon_core.api import Registry
from chameleon_core.plugin_api import CommandRecord, Kind, NoOptions, PluginRecord
from chameleon_system._processor import this_processor
from synthetic import plugin_of

PIPELINE = "model: {onnx: net.onnx}\ntarget: native\npreset: hot\n"


COMMANDS = [
    CommandRecord(name="raise", summary="Raises.", factory="cli_test_commands:raiser"),
    CommandRecord(name="broken", summary="Cannot be imported.", factory="no_such:x"),
    CommandRecord(name="wrong", summary="Is no command.", factory="cli_test_commands:wrong"),
    CommandRecord(name="run", summary="Wants to be run.", factory="cli_test_commands:raiser"),
]
"""A command of a plugin's own, and some that are broken."""


@pytest.fixture
def raising(chameleon, fakes, install, monkeypatch):
    """``chameleon raise`` with this error, or with a function that is called instead."""
    install(fakes.registry(("commands-dist", plugin_of(commands=COMMANDS))))

    def call(error, *options):
        @click.command("raise")
        def raiser():
            if isinstance(error, BaseException):
                raise error
            return error()

        module = ModuleType("cli_test_commands")
        module.raiser = raiser
        module.wrong = len
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return chameleon(*options, "raise")

    return call


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a"), ExitCode.USAGE),
        (RunFolderError("a"), ExitCode.USAGE),
        (PluginError("a"), ExitCode.PLUGIN),
        (TargetError("a"), ExitCode.DEVICE),
        (ChameleonError("a"), ExitCode.INTERNAL),
        (KeyError("a"), ExitCode.INTERNAL),
        (AssertionError(), ExitCode.INTERNAL),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (SystemExit(5), ExitCode.THRESHOLD_MISSED),
        (SystemExit(None), ExitCode.OK),
        (click.UsageError("a"), ExitCode.USAGE),
        (click.exceptions.Exit(4), ExitCode.DEVICE),
        (lambda: ExitCode.NO_VALID_RESULT, ExitCode.NO_VALID_RESULT),
        (lambda: None, ExitCode.OK),
    ],
)
def test_every_way_to_end_has_its_exit_code(raising, error, code):
    assert raising(error).code == code


def test_an_error_is_a_sentence_with_a_hint_on_stderr(raising):
    outcome = raising(TargetError("no such target", hint="try 'native'"))
    assert (outcome.out, outcome.err) == ("", "error: no such target\nhint: try 'native'\n")


def test_an_unexpected_error_is_short_unless_debugging(raising, monkeypatch):
    short = raising(ZeroDivisionError("oops"))
    assert short.err.startswith("internal error: ZeroDivisionError: oops\nhint: ")
    assert "Traceback" not in short.err
    assert "Traceback" in raising(ZeroDivisionError("oops"), "--debug").err
    monkeypatch.setenv("CHAMELEON_DEBUG", "1")
    assert "Traceback" in raising(ZeroDivisionError("oops")).err


def test_logs_go_to_stderr_as_much_as_is_wanted(raising):
    def log():
        structlog.get_logger().warning("look out")
        structlog.get_logger().info("by the way")
        structlog.get_logger().debug("in detail")

    quiet, verbose, debug = raising(log), raising(log, "-v"), raising(log, "--debug")
    assert quiet.out == verbose.out == debug.out == ""
    assert [outcome.err.count("\n") for outcome in (quiet, verbose, debug)] == [1, 2, 3]
    assert "look out" in quiet.err


def test_an_exception_that_is_only_logged_is_one_line_unless_debugging(raising):
    def log():
        try:
            Path("no/such/file").read_text()
        except OSError:
            structlog.get_logger().exception("a listener failed")

    assert raising(log).err.count("\n") == 1
    assert "FileNotFoundError: [Errno 2]" in raising(log).err
    assert "Traceback" in raising(log, "--debug").err


def test_commands_of_plugins_are_listed_and_broken_ones_blame_their_plugin(raising, chameleon):
    raising(lambda: None)
    text = chameleon("--help").out
    assert "Raises." in text
    assert "Wants to be run." not in text  # no plugin takes the place of a command of ours
    broken = chameleon("broken")
    assert broken.code == ExitCode.PLUGIN
    assert "'no_such:x' cannot be imported" in broken.err
    wrong = chameleon("wrong")
    assert wrong.code == ExitCode.PLUGIN
    assert "no click command" in wrong.err


@pytest.mark.parametrize("name", ["run", "validate", "init", "plugins", "status", "best", "env"])
def test_help_lists_every_command_and_each_can_be_imported(chameleon, name):
    assert f"\n  {name} " in chameleon("--help").out
    outcome = chameleon(name, "--help")
    assert outcome.code == ExitCode.OK
    assert outcome.out.startswith("Usage: chameleon " + name)


@pytest.mark.parametrize(
    "arguments", [["validat"], ["validate"], ["validate", "a", "b"], ["--wrong"], ["plugins", "x"]]
)
def test_wrong_usage_ends_with_2(chameleon, arguments):
    outcome = chameleon(*arguments)
    assert outcome.code == ExitCode.USAGE
    assert outcome.out == ""
    assert outcome.err


def test_an_unknown_command_is_answered_with_a_guess(chameleon):
    assert "unknown command 'validat'; did you mean 'validate'?" in chameleon("validat").err


def test_validate_prints_a_pipeline_that_validates_to_itself(chameleon):
    Path("p.yaml").write_text(PIPELINE)
    first = chameleon("validate", "p.yaml", "--quick", "--set", "seed=3", "--set", "output=there")
    assert first.code == ExitCode.OK
    assert first.out.startswith("# Expanded from p.yaml with preset 'hot'; ")
    Path("q.yaml").write_text(first.out)
    second = chameleon("validate", "q.yaml", "--quick")
    assert second.out.splitlines()[1:] == first.out.splitlines()[1:]
    as_json = json.loads(chameleon("validate", "q.yaml", "--quick", "--json").out)
    assert as_json["pipeline"]["seed"] == 3
    assert as_json["digest"] == from_dict(as_json["pipeline"]).digest


def test_validate_lists_every_mistake_on_stderr(chameleon):
    Path("p.yaml").write_text(PIPELINE + "explorr: x\nsampler: gredy\n")
    outcome = chameleon("validate", "p.yaml")
    assert (outcome.code, outcome.out) == (ExitCode.USAGE, "")
    assert outcome.err.splitlines()[:2] == [
        "p.yaml:4:1: unknown key 'explorr'; did you mean 'explorer'?",
        "p.yaml:5:10: unknown sampler 'gredy'; did you mean 'greedy'?",
    ]


def test_plugins_lists_what_is_installed_with_its_options(chameleon):
    text = chameleon("plugins", "explorers", "--options").out
    assert "annealing  The annealing." in text
    assert "chains: 128" in text
    assert "template" not in text
    facts = json.loads(chameleon("plugins", "--json").out)
    assert facts["errors"] == []
    (annealing,) = [row for row in facts["plugins"] if row["name"] == "annealing"]
    assert annealing["distribution"] == "fakes"
    assert annealing["options"][0] == {
        "name": "chains",
        "type": "int",
        "required": False,
        "default": 128,
        "help": "",
    }


def test_plugins_shows_duplicates_apart_and_warns_of_broken_ones(chameleon, fakes, install):
    broken = plugin_of(runners=RuntimeError("no device"))
    install(fakes.registry(("extra-dist", fakes.EXTRA), ("broken-dist", broken)))
    outcome = chameleon("plugins")
    assert outcome.code == ExitCode.OK
    assert "fakes:random" in outcome.out
    assert "extra-dist:random" in outcome.out
    assert "'broken-dist' failed in chameleon_runners: RuntimeError: no device" in outcome.err
    errors = json.loads(chameleon("plugins", "--json").out)["errors"]
    assert [error["distribution"] for error in errors] == ["broken-dist"]
    assert "no device" in chameleon("env").err
    assert "no device" in json.loads(chameleon("env", "--json").out)["plugin_errors"][0]


def test_plugins_lists_a_kind_that_a_distribution_brings(chameleon, fakes, install):
    suite, factory = "placing:PlacerSuite", "placing:Greedy"
    kind = Kind(name="placers", summary="", distribution="my-placers", conformance=suite)
    greedy = PluginRecord(name="greedy", summary="By.", factory=factory, options=NoOptions)
    install(fakes.registry(("my-placers", plugin_of(kinds=[kind], placers=[greedy]))))
    assert "placers\n  greedy  By.\n" in chameleon("plugins").out
    assert chameleon("plugins", "placer").out == "placers\n  greedy  By.\n"
    assert "unknown placer 'gredi'" in chameleon("plugins", "check", "placers:gredi").err


def test_init_writes_a_pipeline_once(chameleon, tmp_path):
    assert chameleon("init").code == ExitCode.OK
    text = Path("pipeline.yaml").read_text()
    assert "# explorer: {name: annealing, chains: 64}\n# (also: random)\n" in text
    again = chameleon("init")
    assert again.code == ExitCode.USAGE
    assert "pipeline.yaml exists already" in again.err
    assert chameleon("init", "--force").code == ExitCode.OK
    assert chameleon("init", tmp_path / "no" / "folder.yaml").code == ExitCode.USAGE


DEFAULTS = (*STAGES, "preset", "baselines", "output")
"""What `init` comments in with its default."""


def opened(line, *keys):
    """A line without its `#` where it is one of these keys."""
    return line[2:] if line[2:].startswith(tuple(f"{key}:" for key in keys)) else line


def test_what_init_writes_is_right_up_to_the_operators_of_a_frontend(chameleon, fakes):
    chameleon("init", "p.yaml")
    head, _, rest = Path("p.yaml").read_text().partition("model:")
    model, _, tail = rest.partition("# The hardware to tune for")
    Path("p.yaml").write_text(f"{head}model: {{onnx: a}}\n# The hardware to tune for{tail}")
    assert model.strip().startswith("operators:")
    plain = load_pipeline("p.yaml")
    # Every line that is commented out is right as well.
    lines = Path("p.yaml").read_text().splitlines()
    Path("p.yaml").write_text("\n".join(opened(line, "require") for line in lines))
    assert load_pipeline("p.yaml").require.min_ratio == 0.9
    Path("p.yaml").write_text("\n".join(opened(line, *DEFAULTS) for line in lines))
    assert load_pipeline("p.yaml").document == plain.document


def test_env_names_versions_and_processor(chameleon):
    facts = json.loads(chameleon("env", "--json").out)
    assert facts["packages"]["chameleon-tuner-core"]
    assert 1 <= facts["cpu"]["usable"] <= facts["cpu"]["affinity"] <= facts["cpu"]["logical"]
    processor = this_processor()
    if processor is not None:
        assert set(facts["cpu"]["instructions"]) <= processor.flags
        assert ("avx2" in facts["cpu"]["instructions"]) == ("avx2" in processor.flags)
        assert "smep" not in facts["cpu"]["instructions"]
    assert facts["python"].startswith("3.")
    assert "numpy" in chameleon("env").out


def test_env_shows_the_quota_that_limits_threads(chameleon, monkeypatch):
    monkeypatch.setattr(env, "cpu_quota", lambda: 1.5)
    assert json.loads(chameleon("env", "--json").out)["cpu"]["quota"] == 1.5
    assert re.search(r"^quota +1\.5 cores$", chameleon("env").out, flags=re.MULTILINE)


def test_main_prints_the_version_and_exits(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == ExitCode.OK
    assert capsys.readouterr().out.startswith("chameleon ")


def test_what_init_writes_is_right_for_the_installed_plugins(chameleon, install):
    registry = Registry.from_plugins([], with_installed=True)
    if "operators" not in registry.names("frontends") or not registry.names("presets"):
        pytest.skip("chameleon-tuner-tvm is not installed")
    install(registry)
    chameleon("init")
    outcome = chameleon("validate", "--quick", "pipeline.yaml")
    assert (outcome.code, outcome.err) == (ExitCode.OK, "")
    plain = load_pipeline("pipeline.yaml").document
    text = Path("pipeline.yaml").read_text()
    Path("pipeline.yaml").write_text(
        "\n".join(opened(line, *DEFAULTS) for line in text.splitlines())
    )
    assert load_pipeline("pipeline.yaml").document == plain, "what is written in is the default"
    commented = {line.split(":")[0] for line in text.splitlines() if line.startswith("# ")}
    assert {f"# {key}" for key in DEFAULTS} <= commented
    (default,) = (entry.record for entry in registry.entries("presets") if entry.name == "default")
    assert default.reasons.keys() == {*STAGES, "baselines", "budget", "seed"}
    words = " ".join(text.replace("\n# ", " ").split())
    assert all(reason in words for reason in default.reasons.values())
