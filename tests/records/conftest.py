"""Synthetic runs in a test's own folder."""

import json

import pytest
from chameleon_core._errors import ChameleonError
from chameleon_records._commands.group import command
from click.testing import CliRunner

from .synthetic import measured_lines, synthetic_run


@pytest.fixture
def run(tmp_path):
    """Runs a pipeline in ``tmp_path/name``."""

    def made(name, **more):
        return synthetic_run(tmp_path / name, **more)

    return made


@pytest.fixture
def measured(tmp_path):
    """What a run of ``run`` has measured, a line each."""

    def lines(name):
        return measured_lines(tmp_path / name)

    return lines


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "db" / "records.sqlite")


@pytest.fixture
def chameleon_records():
    """Gives the command's words to it; what it prints as JSON."""

    def given(*words):
        result = CliRunner().invoke(command, [*map(str, words)], catch_exceptions=True)
        if isinstance(result.exception, ChameleonError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if "--json" in words else result.stdout

    return given
