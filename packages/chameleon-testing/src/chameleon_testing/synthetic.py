"""Whole pipelines of synthetic stages, which run anywhere in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chameleon_core import hooks
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import NoOptions, PluginRecord, Registry, hookimpl

from chameleon_testing.fakes import (
    ModelOptions,
    RunnerOptions,
    SyntheticBaseline,
    SyntheticCostModel,
    SyntheticExplorer,
    SyntheticFrontend,
    SyntheticReplay,
    SyntheticRival,
    SyntheticRunner,
    SyntheticSampler,
    SyntheticSpace,
    SyntheticSynthesizer,
    SyntheticUntuned,
)


def _record(factory: type, options: type = NoOptions, name: str = "synthetic") -> PluginRecord:
    return PluginRecord(
        name=name,
        summary=(factory.__doc__ or "").partition("\n")[0],
        options=options,
        factory=f"{factory.__module__}:{factory.__name__}",
    )


class SyntheticPlugins:
    """Registers every synthetic stage."""

    @hookimpl
    def chameleon_frontends(self) -> Iterable[PluginRecord]:
        """The frontend."""
        yield _record(SyntheticFrontend, ModelOptions)

    @hookimpl
    def chameleon_spaces(self) -> Iterable[PluginRecord]:
        """The space."""
        yield _record(SyntheticSpace)

    @hookimpl
    def chameleon_explorers(self) -> Iterable[PluginRecord]:
        """The explorer."""
        yield _record(SyntheticExplorer)

    @hookimpl
    def chameleon_cost_models(self) -> Iterable[PluginRecord]:
        """The cost model."""
        yield _record(SyntheticCostModel)

    @hookimpl
    def chameleon_samplers(self) -> Iterable[PluginRecord]:
        """The sampler."""
        yield _record(SyntheticSampler)

    @hookimpl
    def chameleon_synthesizers(self) -> Iterable[PluginRecord]:
        """The synthesizer."""
        yield _record(SyntheticSynthesizer)

    @hookimpl
    def chameleon_runners(self) -> Iterable[PluginRecord]:
        """One that stands for hardware, and one that stands for a table."""
        yield _record(SyntheticRunner, RunnerOptions)
        yield _record(SyntheticReplay, RunnerOptions, name="synthetic-replay")

    @hookimpl
    def chameleon_rivals(self) -> Iterable[PluginRecord]:
        """The rival."""
        yield _record(SyntheticRival)

    @hookimpl
    def chameleon_baselines(self) -> Iterable[PluginRecord]:
        """A vendor's baseline and an untuned one."""
        yield _record(SyntheticBaseline)
        yield _record(SyntheticUntuned, name="synthetic-untuned")


def synthetic_document(
    output: Path | str,
    *,
    operators: Sequence[Sequence[int]] = ((7, 9), (5, 5, 5)),
    failing: int = 0,
    runner: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A pipeline file's content that names the synthetic stages.

    Args:
        output: the run folder.
        operators: for each task the cardinalities of its knobs.
        failing: percent of the configurations that fail.
        runner: options of the synthetic runner.
        more: further keys, or others in place of the synthetic ones.
    """
    stages = ("space", "explorer", "cost_model", "sampler", "synthesizer")
    return {
        "model": {"synthetic": {"operators": [list(o) for o in operators], "failing": failing}},
        "target": "nowhere",
        **dict.fromkeys(stages, "synthetic"),
        "runner": {"name": "synthetic", **(runner or {})},
        "scheduler": "round-robin",
        "baselines": ["synthetic", "synthetic-untuned"],
        "budget": {"measurements": 20, "batch_size": 4},
        "output": str(output),
        **more,
    }


def synthetic_registry(*plugins: object) -> Registry:
    """Core's own plugins, the synthetic ones, and more; nothing else that is installed."""
    return Registry.from_plugins([*plugins, hooks, SyntheticPlugins()])


def run_synthetic(document: Mapping[str, Any]) -> RunResult:
    """Run a document of ``synthetic_document`` in this process."""
    return run_pipeline(from_dict(document, registry=synthetic_registry()))
