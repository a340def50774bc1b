"""The command line in this process, with fake plugins instead of the installed ones."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from chameleon_cli.main import run
from chameleon_core.plugins import Registry


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Gives a command line to the program in this process."""

    def call(*arguments: Any) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def chameleon(
    fakes: ModuleType,
    install: Callable[[Registry], Registry],
    command: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Outcome]:
    install(fakes.registry())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHAMELEON_DEBUG", "")
    for name in ("CHAMELEON_LOG_FORMAT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return command
