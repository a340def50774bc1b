"""Whole pipelines of synthetic stages, which run anywhere in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chameleon_core import hooks
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import NoOptions, PluginRecord, Registry, hookimpl

from chameleon_testing import fakes


def _registers(*factories: type, options: type = NoOptions) -> Callable[[object], Any]:
    """A hook that registers stages; a ``SyntheticX`` is ``synthetic``, a second one has more."""
    names = ["synthetic", *(f"synthetic-{one.__name__[9:].lower()}" for one in factories[1:])]
    records = [
        PluginRecord(
            name=name,
            summary=(factory.__doc__ or "").partition("\n")[0],
            options=options,
            factory=f"{factory.__module__}:{factory.__name__}",
        )
        for name, factory in zip(names, factories, strict=True)
    ]

    @hookimpl
    def hook(self: object) -> list[PluginRecord]:
        del self
        return records

    return hook


class SyntheticPlugins:
    """Registers every synthetic stage."""

    chameleon_frontends = _registers(fakes.SyntheticFrontend, options=fakes.ModelOptions)
    chameleon_spaces = _registers(fakes.SyntheticSpace)
    chameleon_explorers = _registers(fakes.SyntheticExplorer)
    chameleon_cost_models = _registers(fakes.SyntheticCostModel)
    chameleon_samplers = _registers(fakes.SyntheticSampler)
    chameleon_synthesizers = _registers(fakes.SyntheticSynthesizer)
    chameleon_runners = _registers(
        fakes.SyntheticRunner, fakes.SyntheticReplay, options=fakes.RunnerOptions
    )
    chameleon_rivals = _registers(fakes.SyntheticRival)
    chameleon_baselines = _registers(fakes.SyntheticBaseline, fakes.SyntheticUntuned)


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
