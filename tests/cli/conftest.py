"""The command line in this process, with fake plugins instead of the installed ones."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from chameleon_cli.main import run
from chameleon_core.plugins import Registry
from chameleon_core.plugins.registry import default_registry


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    path = Path(__file__).parents[1] / "core" / "pipeline" / "fakes.py"
    spec = importlib.util.spec_from_file_location("chameleon_test_cli_fakes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs resolves annotations through it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Registry], None]]:
    """Makes a registry the one of the installed plugins."""

    def replace(registry: Registry) -> None:
        default_registry.cache_clear()
        monkeypatch.setattr(Registry, "load", classmethod(lambda _: registry))

    yield replace
    default_registry.cache_clear()


@pytest.fixture
def chameleon(
    fakes: ModuleType,
    install: Callable[[Registry], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Outcome]:
    install(fakes.registry())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHAMELEON_DEBUG", "")
    for name in ("CHAMELEON_LOG_FORMAT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: Any) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
