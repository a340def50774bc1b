"""What was built runs where there is no repository, and says what is missing where something is."""

import json
import shutil

import pytest

from .conftest import OURS

SMALL = [f"{OURS}-{kind}" for kind in ("core", "cli", "system", "testing")]
SEARCH = [
    *SMALL,
    *(
        f"{OURS}-{kind}"
        for kind in ("explorers", "cost-models", "samplers", "runners", "bench", "records")
    ),
]

TABLE = """
model: {table: convolution_A100.json.gz}
target: recorded
space: table
runner: replay
baselines: []
cost_model: COST_MODEL
budget: {measurements: 40}
output: OUTPUT
"""

SYNTHETIC = """
import sys
sys.path.append(sys.argv[1])
from synthetic import run_synthetic, synthetic_document
result = run_synthetic(synthetic_document("synthetic"))
assert all(operator.tuned_seconds for operator in result.operators)
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""

LIBRARIES = ("torch", "tvm", "sklearn", "xgboost", "lightgbm", "scipy", "onnx")


@pytest.fixture(scope="module")
def small(environment):
    """The core with its command line, and nothing that searches."""
    return environment(*SMALL)


@pytest.fixture(scope="module")
def search(environment, root):
    """What searches and replays, without a compiler."""
    result = environment(*SEARCH)
    shutil.copy(root / "tests" / "data" / "convolution_A100.json.gz", result.folder)
    return result


@pytest.fixture(scope="module")
def everything(environment, packages):
    """All distributions, without large libraries: torch and TVM are not there."""
    return environment(*(package.name for package in packages))


def test_the_core_runs_without_any_library_that_learns_or_compiles(small, root):
    assert not [name for name in LIBRARIES if small.has(name)]
    imported = set(small.python("-c", SYNTHETIC, root / "tests" / "support").stdout.split())
    assert "chameleon_core" in imported
    assert not imported & set(LIBRARIES)


def test_the_command_line_of_the_core_alone_says_what_is_missing(small):
    assert small.chameleon("--version").stdout.startswith("chameleon ")
    assert "scheduler" in small.chameleon("plugins").stdout
    assert json.loads(small.chameleon("env", "--json").stdout)["packages"]["torch"] is None
    small.chameleon("init", "p.yaml")
    for command in ("validate", "run"):
        text = small.chameleon(command, "p.yaml", codes=(2, 3)).stderr
        assert "p.yaml:6:3: unknown frontend 'operators'" in text
        assert "missing 'explorer', and no preset gives one; installed: none" in text
        assert "hint: " in text
        assert "Traceback" not in text


@pytest.mark.parametrize("cost_model", ["xgboost", "gaussian-process"])
def test_a_recorded_table_is_tuned_without_the_repository(search, cost_model):
    text = TABLE.replace("COST_MODEL", cost_model).replace("OUTPUT", f"run-{cost_model}")
    (search.folder / "table.yaml").write_text(text)
    search.chameleon("validate", "table.yaml")
    result = json.loads(search.chameleon("run", "table.yaml", "--json").stdout)
    (operator,) = result["operators"]
    assert operator["measurements"] == 40
    # The best of all is .55 ms, the median 1.8 ms.
    assert operator["tuned_seconds"] < 1e-3
    folder = search.folder / f"run-{cost_model}"
    assert "<html" in (folder / "report.html").read_text(), "templates came with their package"
    assert "convolution_A100" in search.chameleon("status", folder).stdout
    assert not search.has("torch")
    assert not search.has("tvm")


def test_every_plugin_is_listed_where_its_library_is_not(everything):
    document = json.loads(everything.chameleon("plugins", "--json").stdout)
    assert document["errors"] == []
    names = {(plugin["kind"], plugin["name"]) for plugin in document["plugins"]}
    assert {("explorers", "ppo"), ("frontends", "torch"), ("targets", "tvm")} <= names
    assert not everything.has("torch")
    assert not everything.has("tvm")
    listed = everything.chameleon("--help").stdout
    assert all(name in listed for kind, name in names if kind == "commands")


def test_what_is_not_installed_is_named_with_its_place(everything):
    everything.chameleon("init", "p.yaml")
    done = everything.chameleon(
        "validate", "p.yaml", "--set", "explorer=ppo", codes=(3,)
    ).stderr.splitlines()
    at = everything.line_of("p.yaml", "target: native")
    (target,) = (line for line in done if line.startswith(f"p.yaml:{at}:9: "))
    assert "No module named 'tvm" in target
    (explorer,) = (line for line in done if line.startswith("--set explorer=ppo: "))
    assert "No module named 'torch'" in explorer
    assert "hint: install the package that brings the module 'torch'" in done
    (everything.folder / "net.onnx").touch()
    done = everything.chameleon(
        "validate", "p.yaml", "--set", "model={onnx: net.onnx}", codes=(2, 3)
    ).stderr
    assert "onnx is not installed" in done
    assert "Traceback" not in done
