"""A third party's explorer, from its wheel to its own tests and a tuned kernel."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from .conftest import chameleon, installed_from_wheel

MOST_LINES = 30


@pytest.fixture(scope="module")
def example(root):
    return root / "examples" / "plugin-hill-climb"


@pytest.fixture(scope="module")
def installed(example, tmp_path_factory):
    return installed_from_wheel(example, tmp_path_factory.mktemp("example"))


def test_what_its_author_wrote_is_short(example):
    text = (example / "src" / "hill_climb" / "explorer.py").read_text()
    (made,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    assert made.end_lineno - made.lineno < MOST_LINES


def test_its_wheel_is_found_checked_and_used(example, installed, tmp_path):
    listed = chameleon(installed, tmp_path, "plugins", "explorers")
    assert not listed["errors"]
    (found,) = (one for one in listed["plugins"] if one["name"] == "hill-climb")
    assert found["distribution"] == "hill-climb"
    checked = chameleon(installed, tmp_path, "plugins", "check", "hill-climb")
    assert not [one for one in checked["checks"] if one["failure"] or one["skipped"]]
    given = ("budget.measurements=4", "budget.batch_size=2", "baselines=[]")
    settings = [word for one in given for word in ("--set", one)]
    run = ("run", example / "pipeline.yaml", *settings, "--output", "run")
    (operator,) = chameleon(installed, tmp_path, *run)["operators"]
    assert operator["measurements"] == 4
    assert operator["tuned_seconds"] > 0


def test_its_own_tests_pass_on_the_wheel(example, installed, tmp_path):
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*words, "--rootdir", str(tmp_path), "-c", "/dev/null", str(example / "tests")],
        env=installed,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout


def test_its_suite_of_a_bench_is_read(example, installed, tmp_path):
    words = [sys.executable, "-m", "chameleon_cli", "bench", str(example / "bench.yaml")]
    done = subprocess.run(
        [*words, "--dry-run"],
        env=installed,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hill-climb" in done.stdout
