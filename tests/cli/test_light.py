"""The commands one waits for import nothing heavy, with whatever plugins are installed."""

import json
import sys

import pytest
from programs import completed

HEAVY = {"torch", "tvm", "xgboost", "sklearn", "lightgbm", "scipy", "structlog", "rich"}

PROGRAM = """
import json, sys
from chameleon_cli._main import run
code = run(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


CORE_ALONE = """
import sys
from chameleon_core import hooks
from chameleon_core.api import Registry
alone = Registry.from_plugins([("chameleon-tuner-core", hooks)])
Registry.load = classmethod(lambda _: alone)
"""


def modules_after(program, *arguments, folder):
    """The exit code of a command line and the modules that it imported."""
    done = completed([sys.executable, "-c", program, *arguments], cwd=folder)
    report = json.loads(done.stderr.splitlines()[-1])
    return report["code"], set(report["modules"])


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["validate", "p.yaml"], ["env"]])
def test_this_package_alone_does_not_even_import_numpy(tmp_path, arguments):
    (tmp_path / "p.yaml").write_text("model: {operators: []}\ntarget: native\n")
    _, modules = modules_after(CORE_ALONE + PROGRAM, *arguments, folder=tmp_path)
    assert not modules & (HEAVY | {"numpy"})


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (["--help"], {0}),
        (["plugins"], {0}),
        (["plugins", "--options", "--json"], {0}),
        (["validate", "--quick", "PIPELINE"], {0}),
        (["validate", "WRONG"], {2}),
        (["env"], {0}),
        (["--version"], {0}),
    ],
)
def test_nothing_heavy_is_imported(tmp_path, arguments, codes):
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("model: {operators: []}\ntarget: native\n")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("model: {no-such-frontend: []}\ntarget: native\nexplorer: no-such\n")
    files = {"PIPELINE": str(pipeline), "WRONG": str(wrong)}
    values = [files.get(argument, argument) for argument in arguments]
    code, modules = modules_after(PROGRAM, *values, folder=tmp_path)
    assert not (HEAVY | {"numpy"}) & modules
    # Whether the installed frontends take an empty list is theirs to say.
    assert code in (codes if arguments[-1] != "PIPELINE" else {0, 2, 3})


def test_commands_that_log_import_structlog_without_rich(tmp_path):
    _, modules = modules_after(PROGRAM, "run", "no.yaml", folder=tmp_path)
    assert {"structlog", "rich"} & modules == {"structlog"}
