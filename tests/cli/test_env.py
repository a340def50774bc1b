"""What `chameleon env` says of this machine in a bug report, and the warning about old CPUs."""

import importlib
import json
import os

import pytest
from chameleon_cli import _env as env
from chameleon_core._errors import ExitCode
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions, TargetRecord
from chameleon_system._processor import Processor
from synthetic import plugin_of

command_line = importlib.import_module("chameleon_cli._main")  # the package has the function
FUNCTIONS = """
import os, signal, sys

def known():
    print("said by a library")
    kernels = {"float32": "avx2 FMA", "int8": "vpmaddwd"}
    return {"target": "llvm -mcpu=zen", "kernels": kernels, "refused": {}, "model_number": ""}

def absent():
    import no_such_library

def illegal():
    os.kill(os.getpid(), signal.SIGILL)
"""


@pytest.fixture
def described(tmp_path, monkeypatch, install, command):
    """The output of `env` with a target resolver that describes this machine with a function."""
    (tmp_path / "machines.py").write_text(FUNCTIONS)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    def call(name, *arguments):
        record = TargetRecord(
            name="boards", summary="", factory="machines:Boards", options=NoOptions, machine=name
        )
        install(Registry.from_plugins([("boards", plugin_of(targets=[record]))]))
        return command("env", *arguments)

    return call


def rows(outcome):
    """The rows between the processor's instructions and its cores."""
    lines = outcome.out.splitlines()
    names = [line.split("  ")[0] for line in lines]
    return lines[names.index("instructions") + 1 : names.index("cores")]


def test_env_shows_what_a_resolver_says_of_this_machine(described):
    lines = [" ".join(line.split()) for line in rows(described("machines:known"))]
    assert lines == [
        "target llvm -mcpu=zen",
        "kernels float32: avx2 FMA; int8: vpmaddwd",
        "refused none",
    ]
    facts = json.loads(described("machines:known", "--json").out)["targets"]
    assert facts["boards"]["kernels"]["int8"] == "vpmaddwd"
    assert facts["boards"]["refused"] == {}
    assert json.loads(described("", "--json").out)["targets"] == {}


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("machines:absent", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("machines:none", "PluginError: 'machines:none' cannot be imported"),
        ("machines:illegal", "its process ended with SIGILL"),
    ],
)
def test_a_library_that_does_not_run_here_ends_no_report(described, function, problem):
    outcome = described(function)
    (row,) = rows(outcome)
    assert outcome.code == ExitCode.OK
    assert row.startswith("target ")
    assert f"unknown: {problem}" in row
    assert "\ncores " in outcome.out


def test_a_library_that_hangs_ends_no_report(described, monkeypatch):
    monkeypatch.setattr(env, "_SECONDS", 0.0)
    (row,) = rows(described("machines:known"))
    assert "unknown: its process does not answer: TimeoutError" in row


OLD = Processor(
    architecture="x86_64",
    name="QEMU Virtual CPU version 2.5+",
    flags=frozenset({"sse2", "pni", "hypervisor"}),
)


@pytest.fixture
def old(monkeypatch):
    """This machine has a CPU from before x86-64-v2."""
    for module in (env, command_line):
        monkeypatch.setattr(module, "this_processor", lambda: OLD)


def test_a_cpu_below_x86_64_v2_is_told_before_libraries_are_imported(old, chameleon):
    outcome = chameleon("run", "none.yaml")
    warning, hint, error, *_ = outcome.err.splitlines()
    assert warning.startswith("warning: this CPU (QEMU Virtual CPU version 2.5+) lacks ssse3, ")
    assert "NumPy from 2.4 on" in warning
    assert hint == "hint: choose the CPU model `host` for the virtual machine"
    assert error.startswith("error: ")
    line = json.loads(chameleon("--log-format", "json", "plugins").err.splitlines()[0])
    assert (line["level"], line["hint"]) == ("warning", hint.removeprefix("hint: "))
    assert "lacks" not in chameleon("--help").err


def test_hardware_below_x86_64_v2_gets_another_hint(old, chameleon, monkeypatch):
    plain = Processor(architecture="x86_64", name="Core 2", flags=frozenset({"ssse3"}))
    monkeypatch.setattr(command_line, "this_processor", lambda: plain)
    hint = chameleon("plugins").err.splitlines()[1]
    assert hint.startswith("hint: use a CPU of the level x86-64-v2, or `numpy<2.4`")


def test_env_lists_what_a_cpu_lacks(old, chameleon):
    assert "\nlacking " in chameleon("env").out
    facts = json.loads(chameleon("env", "--json").out)
    assert facts["cpu"]["lacking"] == ["ssse3", "sse4_1", "sse4_2", "popcnt"]


@pytest.mark.parametrize(
    "processor",
    [
        None,
        Processor(architecture="aarch64", flags=frozenset({"asimd"})),
        Processor(architecture="x86_64", flags=frozenset({"ssse3", "sse4_1", "sse4_2", "popcnt"})),
    ],
)
def test_no_other_processor_is_warned_of(chameleon, monkeypatch, processor):
    monkeypatch.setattr(command_line, "this_processor", lambda: processor)
    assert chameleon("plugins").err == ""
