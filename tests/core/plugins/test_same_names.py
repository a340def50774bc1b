"""A plugin with a built-in's name takes nothing away from those who did not choose it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins import (
    AmbiguousNameError,
    NoOptions,
    PluginRecord,
    PresetRecord,
    Registry,
    hookimpl,
)
from chameleon_core.plugins.first_party import FIRST_PARTY
from synthetic import SyntheticPlugins, synthetic_document

ROOT = Path(__file__).parents[3]
OURS, THEIRS = "chameleon-tuner-explorers", "another-tuner"
STAGES = ("space", "explorer", "cost_model", "sampler", "synthesizer")


class Copy:
    """Registers an explorer, a baseline and a scheduler under names that others have."""

    @hookimpl
    def chameleon_explorers(self):
        yield _record("synthetic", "SyntheticExplorer")

    @hookimpl
    def chameleon_baselines(self):
        yield _record("synthetic", "SyntheticUntuned")


class Preset:
    """Names stages in a preset."""

    def __init__(self, name: str, **more: Any) -> None:
        self._name, self._more = name, more

    @hookimpl
    def chameleon_presets(self):
        stages: dict[str, Any] = {**dict.fromkeys(STAGES, "synthetic"), "scheduler": "round-robin"}
        pipeline = {**stages, "runner": "synthetic", "baselines": ["synthetic"], **self._more}
        yield PresetRecord(name=self._name, summary="", pipeline=pipeline)


def _record(name: str, factory: str) -> PluginRecord:
    module = "synthetic"
    return PluginRecord(name=name, summary="", options=NoOptions, factory=f"{module}:{factory}")


def _registry(*more: tuple[str, Any]) -> Registry:
    from chameleon_core import hooks  # noqa: PLC0415

    core = ("chameleon-tuner-core", hooks)
    made = Registry.from_plugins([core, (OURS, SyntheticPlugins()), *more])
    assert not made.errors
    return made


def _load(registry: Registry, tmp_path: Path, **more: Any) -> ResolvedPipeline:
    document = synthetic_document(tmp_path / "run")
    kept = {key: document[key] for key in ("model", "target", "output", "budget")}
    return from_dict({**kept, **more}, registry=registry)


@pytest.mark.parametrize(
    ("default", "meant"), [(OURS, OURS), ("chameleon-tuner", OURS), (THEIRS, THEIRS)]
)
def test_a_default_means_its_own_distributions_then_the_projects(tmp_path, default, meant):
    registry = _registry((THEIRS, Copy()), (default, Preset("default")))
    pipeline = _load(registry, tmp_path)
    assert (pipeline.explorer.distribution, pipeline.explorer.name) == (meant, f"{meant}:synthetic")
    assert pipeline.sampler.name == "synthetic", "nobody else has one of that name"
    again = from_dict(pipeline.document, registry=registry)
    assert again.document == pipeline.document


def test_a_default_of_somebody_elses_is_not_everybodys(tmp_path):
    theirs = Preset("default", seed=7)
    registry = _registry((OURS, Preset("default")), (THEIRS, theirs))
    assert _load(registry, tmp_path).seed == 0
    assert _load(registry, tmp_path, preset=f"{THEIRS}:default").seed == 7


def test_who_writes_such_a_name_has_to_say_whose(tmp_path):
    registry = _registry((THEIRS, Copy()), (OURS, Preset("default")))
    with pytest.raises(Exception, match="explorer 'synthetic' is registered by"):
        _load(registry, tmp_path, explorer="synthetic")
    with pytest.raises(AmbiguousNameError):
        registry.find("explorers", "synthetic")
    chosen = _load(registry, tmp_path, explorer=f"{THEIRS}:synthetic")
    assert chosen.explorer.distribution == THEIRS


def test_a_requirement_may_name_the_baseline_of_a_preset(tmp_path):
    registry = _registry((THEIRS, Copy()), (OURS, Preset("default")))
    require = {"min_ratio": 0.1, "against": "synthetic"}
    result = run_pipeline(_load(registry, tmp_path, require=require))
    assert result.missed == []


def test_a_run_goes_on_after_such_a_plugin_was_installed(tmp_path):
    budget = {"measurements": 4, "batch_size": 4}
    alone = _registry((OURS, Preset("default")))
    run_pipeline(_load(alone, tmp_path, budget=budget))
    crowded = _registry((OURS, Preset("default")), (THEIRS, Copy()))
    result = run_pipeline(_load(crowded, tmp_path))
    assert [one.measurements for one in result.operators] == [20, 20]
    assert [one.origins["initial"] for one in result.operators] == [4, 4]


def test_the_projects_distributions_are_those_of_the_repository():
    projects = [path.read_text() for path in (ROOT / "packages").glob("*/pyproject.toml")]
    names = {json.loads(re.search(r'^name = (".*")$', text, re.MULTILINE)[1]) for text in projects}
    assert names == FIRST_PARTY
