"""A registry of fake plugins, and a way to load a text as ``pipeline.yaml``."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from chameleon_core.pipeline.load import load_pipeline
from chameleon_core.pipeline.nodes import PipelineError
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins import Registry


@pytest.fixture
def registry(fakes: ModuleType) -> Registry:
    stages: Registry = fakes.registry()
    assert not stages.errors
    return stages


Load = Callable[..., ResolvedPipeline]


@pytest.fixture
def load(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., ResolvedPipeline]:
    monkeypatch.chdir(tmp_path)

    def run(text: str, *overrides: str, using: Registry | None = None) -> ResolvedPipeline:
        Path("pipeline.yaml").write_text(text, encoding="utf-8")
        return load_pipeline("pipeline.yaml", overrides, registry=using or registry)

    return run


@pytest.fixture
def faults(load: Load) -> Callable[..., list[str]]:
    """The lines of the error that a text must end with."""

    def run(text: str, *overrides: str, using: Registry | None = None) -> list[str]:
        with pytest.raises(PipelineError) as caught:
            load(text, *overrides, using=using)
        return str(caught.value).splitlines()

    return run
