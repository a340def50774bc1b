"""A third party's operator with its template, and explorer: from their wheels to tuned kernels."""

import ast
import os
import sys

import pytest
from programs import completed
from size import code_lines

from .conftest import chameleon, installed_from_wheel

MOST_LINES = {"gram_matrix": 60, "plugin-hill-climb": 30}
SIZES = ("model.operators.0.gram.samples=64", "model.operators.0.gram.features=48")


@pytest.fixture(scope="module")
def gram(root):
    return root / "examples" / "gram_matrix"


@pytest.fixture(scope="module")
def climb(root):
    return root / "examples" / "plugin-hill-climb"


@pytest.fixture(scope="module")
def with_gram(gram, tmp_path_factory):
    return installed_from_wheel(gram, tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def with_climb(climb, tmp_path_factory):
    return installed_from_wheel(climb, tmp_path_factory.mktemp("example"))


def tuned(environment, example, folder, *overrides, before=()):
    """The operator of an example's pipeline, as a run prints it."""
    settings = [word for row in ("runner.workers=1", *overrides) for word in ("--set", row)]
    words = ("run", example / "pipeline.yaml", *settings, "--output", "run")
    (operator,) = chameleon(environment, folder, *before, *words)["operators"]
    return operator


def plugin(environment, folder, kind, name):
    """What `chameleon plugins` says of a plugin."""
    listed = chameleon(environment, folder, "plugins", kind)
    assert not listed["errors"]
    (shown,) = (each for each in listed["plugins"] if each["name"] == name)
    return shown


def test_what_their_authors_wrote_is_short(gram, climb):
    files = [file.read_text() for file in gram.rglob("*.py")]
    assert sum(map(code_lines, files)) <= MOST_LINES["gram_matrix"]
    text = (climb / "src" / "hill_climb" / "explorer.py").read_text()
    (explorer,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    assert explorer.end_lineno - explorer.lineno < MOST_LINES["plugin-hill-climb"]


@pytest.mark.full
def test_the_wheel_of_an_operator_registers_and_workers_find_it(gram, with_gram, tmp_path):
    shown = plugin(with_gram, tmp_path, "operators", "gram")
    assert shown["distribution"] == "gram-matrix"
    required = [option["name"] for option in shown["options"] if option["required"]]
    assert required == ["samples", "features"]
    batches = ("budget.measurements=4", "budget.batch_size=4")
    operator = tuned(with_gram, gram, tmp_path, *SIZES, *batches)
    assert operator["measurements"] == 4
    assert operator["failed"] == {}
    assert operator["tuned_seconds"] > 0
    assert operator["untuned_seconds"] > 0
    assert operator["task"]["operator"] == "gram"
    assert set(operator["best"]) == {"rows", "columns"}


@pytest.mark.full
def test_workers_find_an_operator_where_it_lies(gram, tmp_path):
    """They build its kernels, and it is not installed anywhere."""
    more = ("budget.measurements=1", "baselines=[]")
    result = ("--plugin", gram)
    operator = tuned(dict(os.environ), gram, tmp_path, *SIZES, *more, before=result)
    assert operator["measurements"] == 1
    assert operator["failed"] == {}


@pytest.mark.full
def test_the_wheel_of_an_explorer_is_found_checked_and_used(climb, with_climb, tmp_path):
    shown = plugin(with_climb, tmp_path, "explorers", "hill-climb")
    assert shown["distribution"] == "hill-climb"
    checked = chameleon(with_climb, tmp_path, "plugins", "check", "hill-climb")
    assert not [check for check in checked["checks"] if check["failure"] or check["skipped"]]
    settings = ("budget.measurements=4", "budget.batch_size=2", "baselines=[]")
    operator = tuned(with_climb, climb, tmp_path, *settings)
    assert operator["measurements"] == 4
    assert operator["tuned_seconds"] > 0


def printed(environment, folder, *words):
    return completed([sys.executable, "-m", *words], env=environment, cwd=folder).stdout


@pytest.mark.full
def test_its_own_tests_pass_on_the_wheel(climb, with_climb, tmp_path):
    quiet = ("pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-c", "/dev/null")
    assert "8 passed" in printed(with_climb, tmp_path, *quiet, climb / "tests")


@pytest.mark.full
def test_its_suite_of_a_bench_is_read(climb, with_climb, tmp_path):
    words = ("chameleon_cli", "bench", climb / "bench.yaml", "--dry-run")
    assert "hill-climb" in printed(with_climb, tmp_path, *words)
