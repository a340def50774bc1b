"""What stderr looks like: for people, in colours or not, or as JSON lines for programs."""

import io
import json
import operator
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import click
import pytest
import structlog
from chameleon_cli._json_lines import JsonLines
from chameleon_cli._results_table import print_table
from chameleon_core._errors import ConfigError, ExitCode
from chameleon_core.plugin_api import CommandRecord
from synthetic import plugin_of

SAY = CommandRecord(name="say", summary="Says something.", factory="cli_test_streams:command")


@pytest.fixture
def saying(chameleon, fakes, install, monkeypatch):
    """``chameleon say``, which calls a function."""
    install(fakes.registry(("commands-dist", plugin_of(commands=[SAY]))))

    def call(say, *options):
        module = ModuleType("cli_test_streams")
        module.command = click.command("say")(say)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return chameleon(*options, "say")

    return call


def noisy():
    structlog.get_logger().warning("look out", folder="there")
    sys.stderr.write("printed by a plugin, ")
    sys.stderr.write("in one line\n")
    click.echo("the result")
    try:
        operator.truediv(1, 0)
    except ZeroDivisionError as error:
        raise ConfigError("it went wrong", hint="do this\nor that") from error


def test_every_line_of_stderr_is_json_where_that_is_wanted(saying, monkeypatch):
    outcome = saying(noisy, "--log-format", "json")
    assert (outcome.code, outcome.out) == (ExitCode.USAGE, "the result\n")
    warning, printed, error = map(json.loads, outcome.err.splitlines())
    assert (warning["level"], warning["event"]) == ("warning", "look out")
    assert warning["folder"] == "there"
    assert (printed["level"], printed["event"]) == ("info", "printed by a plugin, in one line")
    assert (error["level"], error["event"]) == ("error", "error: it went wrong")
    assert (error["hint"], error["exit_code"]) == ("do this\nor that", ExitCode.USAGE)
    assert all(row["timestamp"].endswith("Z") for row in (warning, printed, error))
    assert "traceback" not in error
    assert (
        "ZeroDivisionError: division by zero"
        in json.loads(saying(noisy, "--log-format=json", "--debug").err.splitlines()[-1])[
            "traceback"
        ]
    )
    assert "hint: do this\nhint: or that\n" in saying(noisy).err, "the next one is for people again"
    monkeypatch.setenv("CHAMELEON_LOG_FORMAT", "json")
    assert json.loads(saying(noisy).err.splitlines()[0])["event"] == "look out"


def test_a_wrong_command_line_is_told_in_json_as_well(chameleon):
    outcome = chameleon("--log-format", "json", "validate", "--wrong")
    (line,) = outcome.err.splitlines()
    assert outcome.code == json.loads(line)["exit_code"] == ExitCode.USAGE
    assert "--wrong" in json.loads(line)["event"]


def test_an_exception_in_the_log_is_one_field(saying):
    def log():
        try:
            operator.truediv(1, 0)
        except ZeroDivisionError:
            structlog.get_logger().exception("a listener failed")

    (line,) = saying(log, "--log-format", "json").err.splitlines()
    assert json.loads(line)["error"] == "ZeroDivisionError: division by zero"
    (line,) = saying(log, "--log-format", "json", "--debug").err.splitlines()
    assert "Traceback" in json.loads(line)["exception"]


def test_a_line_without_its_end_is_not_lost():
    stream = io.StringIO()
    lines = JsonLines(stream)
    assert lines.write("begun") == len("begun")
    assert not stream.getvalue()
    lines.finish()
    lines.finish()
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["begun"]
    assert not lines.isatty()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("variables", "stream", "coloured"),
    [
        ({}, io.StringIO, False),
        ({}, Terminal, True),
        ({"NO_COLOR": "1"}, Terminal, False),
        ({"NO_COLOR": ""}, Terminal, True),
        ({"FORCE_COLOR": "1"}, io.StringIO, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, Terminal, False),
    ],
)
def test_the_environment_says_whether_there_are_colours(
    saying, monkeypatch, variables, stream, coloured
):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = stream()
    print_table(("operator", "tuned"), [("conv", "1 ms")], file=out)
    # Bold type is no colour, and stays where there is a terminal to show it.
    assert ("\x1b[" in out.getvalue()) == (coloured or stream is Terminal)

    err = stream()
    monkeypatch.setattr(sys, "stderr", err)
    saying(lambda: structlog.get_logger().warning("look out"))
    assert ("\x1b[" in err.getvalue()) == coloured


@pytest.mark.parametrize(
    ("variables", "bold"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False)]
)
def test_headings_follow_the_environment(chameleon, monkeypatch, variables, bold):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[1m" in chameleon("plugins").out) == bold


def test_a_command_outlives_whoever_reads_it():
    code = (
        "import sys\n"
        "from chameleon_cli._streams import outliving_readers\n"
        "with outliving_readers():\n"
        "    for number in range(100_000):\n"
        "        print(number)\n"
        "        print(number, file=sys.stderr)\n"
        "    open(sys.argv[1], 'w').write('done')\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        sign = Path(folder, "sign")
        with subprocess.Popen(
            [sys.executable, "-c", code, str(sign)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(240) == 0
        assert sign.read_text() == "done"


CHAMELEON = [sys.executable, "-c", "from chameleon_cli._main import main; main()"]


def test_children_inherit_streams_that_were_missing():
    program = "from chameleon_cli._streams import open_missing; open_missing(); import os; "
    program += "os._exit([os.get_inheritable(n) for n in range(3)] != [True] * 3)"
    shell = ["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(shell, check=False).returncode == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_needs_no_open_streams(closed):
    ended = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *CHAMELEON, "--version"], check=False
    )
    assert ended.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_an_output_that_cannot_be_written_is_an_error():
    with Path("/dev/full").open("w") as full:
        command = [*CHAMELEON, "--version"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert subprocess.run(command, stdout=-1, stderr=full, check=False).returncode == 0
    assert ended.returncode == ExitCode.NO_VALID_RESULT
    assert ended.stderr.startswith("error: the output cannot be written: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_output_leaves_other_exit_codes(tmp_path):
    with Path("/dev/full").open("w") as full:
        command = [*CHAMELEON, "--log-format", "json", "status", str(tmp_path / "none")]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == ExitCode.USAGE
    assert len(ended.stderr.splitlines()) == 1
