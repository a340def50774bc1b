"""A third party's operator, with its template, from its wheel to a tuned kernel."""

from __future__ import annotations

import ast
import os

import pytest

from .conftest import chameleon, installed_from_wheel

MOST_LINES = 60


@pytest.fixture(scope="module")
def example(root):
    return root / "examples" / "gram_matrix"


@pytest.fixture(scope="module")
def installed(example, tmp_path_factory):
    return installed_from_wheel(example, tmp_path_factory.mktemp("example"))


def lines_of_code(file):
    """Lines that are neither empty, comments, nor docstrings."""
    text = file.read_text()
    documentation = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in documentation
        for number, line in enumerate(text.splitlines(), 1)
    )


def test_it_is_short(example):
    assert sum(map(lines_of_code, example.rglob("*.py"))) <= MOST_LINES


def test_its_wheel_registers_and_workers_find_it(example, installed, tmp_path):
    listed = chameleon(installed, tmp_path, "plugins", "operators")
    assert not listed["errors"]
    (gram,) = (one for one in listed["plugins"] if one["name"] == "gram")
    assert gram["distribution"] == "gram-matrix"
    assert [one["name"] for one in gram["options"] if one["required"]] == ["samples", "features"]
    sizes = ("model.operators.0.gram.samples=64", "model.operators.0.gram.features=48")
    settings = [
        word
        for one in (*sizes, "budget.measurements=4", "budget.batch_size=4")
        for word in ("--set", one)
    ]
    run = ("run", example / "pipeline.yaml", *settings, "--output", "run")
    (operator,) = chameleon(installed, tmp_path, *run)["operators"]
    assert operator["measurements"] == 4
    assert operator["failed"] == {}
    assert operator["tuned_seconds"] > 0
    assert operator["untuned_seconds"] > 0
    assert operator["task"]["operator"] == "gram"
    assert set(operator["best"]) == {"rows", "columns"}


def test_workers_find_it_where_it_lies(example, tmp_path):
    """They build its kernels, and it is not installed anywhere."""
    sizes = ("model.operators.0.gram.samples=64", "model.operators.0.gram.features=48")
    more = ("budget.measurements=1", "baselines=[]")
    settings = [word for one in (*sizes, *more) for word in ("--set", one)]
    run = ("run", example / "pipeline.yaml", *settings, "--output", "run")
    (operator,) = chameleon(dict(os.environ), tmp_path, "--plugin", example, *run)["operators"]
    assert operator["measurements"] == 1
    assert operator["failed"] == {}
