"""What ``init --plugin`` writes is a plugin that works, whatever its kind is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chameleon_cli.main import run
from chameleon_core.errors import ExitCode
from chameleon_core.plugins import KINDS
from chameleon_core.plugins.given import ENVIRONMENT
from chameleon_core.plugins.registry import default_registry
from chameleon_testing.suites.checking import outcomes


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """What a test gives and imports is gone after it."""
    monkeypatch.setenv(ENVIRONMENT, "")
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("probe_"):
            del sys.modules[name]
    default_registry.cache_clear()


def name_of(kind):
    return f"probe-{kind.name.replace('_', '-')}"


def suite_of(folder):
    """The class in a package's tests."""
    file = folder / "tests" / "test_conformance.py"
    spec = importlib.util.spec_from_file_location(f"probe_tests_{folder.name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (found,) = [one for name, one in vars(module).items() if name.startswith("Test")]
    return found


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_it_passes_its_tests_and_the_check_of_the_command_line(kind, capsys):
    name = name_of(kind)
    assert run(["init", "--plugin", kind.noun, name]) == ExitCode.OK
    check = capsys.readouterr().out.splitlines()[-1].split()
    assert check[:3] == ["chameleon", "plugins", "check"]
    os.chdir(name)
    assert run(["--plugin", ".", *check[1:], "--json"]) == ExitCode.OK
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert not [one["failure"] or one["skipped"] for one in checks if one["failure"]]
    assert [one["name"] for one in checks if one["skipped"] is None][0] == "record"
    found = list(outcomes(suite_of(Path.cwd()), {}))
    assert not [one.failure or one.skipped for one in found if one.failure or one.skipped]
    assert len(found) >= 2
    for file in Path.cwd().glob("pipeline.yaml"):
        assert run(["validate", str(file)]) == ExitCode.OK
