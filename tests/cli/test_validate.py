"""``chameleon validate`` looks at the target, at the code of stages, and tries the model."""

import json
from pathlib import Path

import attrs
import pytest
from chameleon_core._errors import ConfigError, ExitCode, TargetError
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core.plugin_api import (
    Frontend,
    NoOptions,
    PluginRecord,
    RunnerRecord,
    TargetResolver,
)
from synthetic import (
    ModelOptions,
    SyntheticFrontend,
    plugin_of,
    synthetic_document,
    synthetic_registry,
)


class Resolver(TargetResolver):
    def __init__(self, options):
        del options

    def resolve(self, text):
        if text != "fpga":
            raise TargetError(f"there is no target {text!r}", hint="Write 'fpga'.")
        return text


@attrs.frozen(kw_only=True)
class FileOptions:
    source: str = attrs.field(metadata={"path": True})


class FromFile(Frontend):
    def __init__(self, options):
        self._file = Path(options.source)

    def check_source(self):
        if self._file.name == "rude":
            raise ZeroDivisionError("oops")
        if not self._file.is_file():
            raise ConfigError(f"there is no file {self._file}", hint="Write one.")

    def check(self, target, threads, earlier):
        assert (target, earlier) == ("fpga", None)
        assert threads > 0
        if self._file.name == "uncompilable":
            raise ConfigError("node 'a' cannot be compiled", hint="Write it otherwise.")

    def decide(self, trials):
        self._layout = "fast" if trials.measures_hardware else "usual"

    def tasks(self, target):
        assert self._layout == "usual"
        if self._file.name == "misshapen":
            raise ConfigError("the shape of input 'x' is open")
        return SyntheticFrontend(ModelOptions(operators=((8,),))).tasks(target)


def record(name, factory, options=NoOptions, kind=PluginRecord, **more):
    if isinstance(factory, type):
        factory = f"{factory.__module__}:{factory.__qualname__}"
    return kind(name=name, summary=name, options=options, factory=factory, **more)


@attrs.frozen(kw_only=True)
class TeamOptions:
    members: tuple[object, ...] = attrs.field(
        default=("synthetic", "gone"), metadata={"stages": "explorers"}
    )


PLUGIN = plugin_of(
    targets=[record("board", Resolver)],
    frontends=[record("file", FromFile, FileOptions)],
    explorers=[
        record("gone", "no_such_module:Explorer"),
        record("team", "synthetic:SyntheticExplorer", TeamOptions),
    ],
    runners=[
        record("tables", "synthetic:SyntheticRunner", kind=RunnerRecord, operators=("table",))
    ],
)


@pytest.fixture
def validate(chameleon, install, tmp_path):
    install(synthetic_registry(PLUGIN))
    for name in ("net", "uncompilable", "misshapen"):
        (tmp_path / name).touch()

    def call(*arguments, **sections):
        values = {"model": {"file": "net"}, "target": "fpga", **sections}
        document = {**synthetic_document(tmp_path / "run"), **values}
        Path("p.yaml").write_text(dump_yaml(document))
        return chameleon("validate", "p.yaml", *arguments)

    return call


def line_of(key):
    lines = Path("p.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(f"{key}:"))


def test_what_can_be_run_is_printed_as_ever(validate):
    looked, quick = validate(), validate("--quick")
    assert (looked.code, looked.err) == (ExitCode.OK, "")
    assert looked.out == quick.out
    assert json.loads(validate("--json").out)["pipeline"]["target"] == "fpga"


def test_everything_is_told_at_once_with_its_place(validate):
    wrong = {"target": "asic", "model": {"file": "absent"}, "explorer": "gone"}
    assert validate("--quick", **wrong).code == ExitCode.OK, "each of them is well-formed"
    outcome = validate(**wrong)
    assert (outcome.code, outcome.out) == (ExitCode.USAGE, "")
    for key, sentence in (
        ("model", "there is no file"),
        ("target", "there is no target 'asic'"),
        ("explorer", "'no_such_module:Explorer' cannot be imported"),
    ):
        (line,) = (line for line in outcome.err.splitlines() if sentence in line)
        source, number, _ = line.split(":", 2)
        # A section that is a mapping begins below its key.
        assert (source, int(number)) == ("p.yaml", line_of(key) + (key == "model"))
    hints = {line for line in outcome.err.splitlines() if line.startswith("hint: ")}
    assert {"hint: Write one.", "hint: Write 'fpga'."} < hints


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"target": "asic"}, ExitCode.DEVICE),
        ({"model": {"file": "absent"}}, ExitCode.USAGE),
        ({"explorer": "gone"}, ExitCode.PLUGIN),
        ({"model": {"file": "rude"}}, ExitCode.PLUGIN),
        ({"model": {"file": "uncompilable"}}, ExitCode.USAGE),
        ({"model": {"file": "misshapen"}}, ExitCode.USAGE),
        ({"fix": {"no_such_knob": 1}}, ExitCode.USAGE),
        ({"runner": "tables"}, ExitCode.USAGE),
        ({"output": "net/run"}, ExitCode.USAGE),
        ({"output": "o" * 300}, ExitCode.USAGE),
    ],
)
def test_the_exit_code_is_that_of_a_run(validate, wrong, code):
    outcome = validate(**wrong)
    assert (outcome.code, outcome.out) == (code, "")
    assert validate("--quick", **wrong).code == ExitCode.OK, "the file alone is well"


def test_what_recorded_times_cannot_tell_is_not_refused(validate):
    model = {"file": "uncompilable"}
    assert validate(model=model, runner="synthetic-replay").code == ExitCode.OK


def test_stages_that_a_stage_names_are_imported_too(validate):
    outcome = validate(explorer="team")
    assert outcome.code == ExitCode.PLUGIN
    assert "'no_such_module:Explorer' cannot be imported" in outcome.err


def test_what_is_set_on_the_command_line_is_its_own_place(validate):
    outcome = validate("--set", "target=asic")
    assert outcome.err.startswith("--set target=asic: there is no target 'asic'\n")
