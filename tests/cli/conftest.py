"""The command line in this process, with fake plugins instead of the installed ones."""

from typing import NamedTuple

import pytest
from chameleon_cli._main import run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys):
    """Gives a command line to the program in this process."""

    def call(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def chameleon(fakes, install, command, tmp_path, monkeypatch):
    install(fakes.registry())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHAMELEON_DEBUG", "")
    for name in ("CHAMELEON_LOG_FORMAT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return command
