"""A registry of fake plugins, and a way to load a text as ``pipeline.yaml``."""

from pathlib import Path

import pytest
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._pipeline.nodes import PipelineError


@pytest.fixture
def registry(fakes):
    stages = fakes.registry()
    assert not stages.errors
    return stages


@pytest.fixture
def load(registry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(text, *overrides, using=None):
        Path("pipeline.yaml").write_text(text, encoding="utf-8")
        return load_pipeline("pipeline.yaml", overrides, registry=using or registry)

    return run


@pytest.fixture
def faults(load):
    """The lines of the error that a text must end with."""

    def run(text, *overrides, using=None):
        with pytest.raises(PipelineError) as caught:
            load(text, *overrides, using=using)
        return str(caught.value).splitlines()

    return run
