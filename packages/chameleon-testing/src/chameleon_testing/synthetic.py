"""Whole pipelines of synthetic stages, which run anywhere in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from chameleon_core import hooks
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import NoOptions, PluginRecord, Registry, hookimpl

from chameleon_testing import fakes

_NAME = "synthetic"


def record_of(
    factory: type, options: type = NoOptions, *, name: str = "", **more: Any
) -> PluginRecord:
    """The record of a stage.

    Args:
        factory: the stage's class; its docstring is the summary.
        options: the class of its options.
        name: the stage's name; the class's in lower case if it is empty.
        more: further fields of the record.
    """
    return PluginRecord(
        name=name or factory.__name__.lower(),
        summary=(factory.__doc__ or factory.__name__).partition("\n")[0],
        options=options,
        factory=f"{factory.__module__}:{factory.__qualname__}",
        **more,
    )


def registering(*records: PluginRecord) -> Callable[[object], Iterator[PluginRecord]]:
    """A hook of a plugin that registers records, for the body of the plugin's class."""

    @hookimpl
    def hook(self: object) -> Iterator[PluginRecord]:
        del self
        yield from records

    return hook


_synthetic = partial(record_of, name=_NAME)


class SyntheticPlugins:
    """Registers every synthetic stage."""

    chameleon_frontends = registering(_synthetic(fakes.SyntheticFrontend, fakes.ModelOptions))
    chameleon_spaces = registering(_synthetic(fakes.SyntheticSpace))
    chameleon_explorers = registering(_synthetic(fakes.SyntheticExplorer))
    chameleon_cost_models = registering(_synthetic(fakes.SyntheticCostModel))
    chameleon_samplers = registering(_synthetic(fakes.SyntheticSampler))
    chameleon_synthesizers = registering(_synthetic(fakes.SyntheticSynthesizer))
    chameleon_runners = registering(
        _synthetic(fakes.SyntheticRunner, fakes.RunnerOptions),
        record_of(fakes.SyntheticReplay, fakes.RunnerOptions, name="synthetic-replay"),
    )
    chameleon_rivals = registering(_synthetic(fakes.SyntheticRival))
    chameleon_baselines = registering(
        _synthetic(fakes.SyntheticBaseline),
        record_of(fakes.SyntheticUntuned, name="synthetic-untuned"),
    )


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
        **dict.fromkeys(stages, _NAME),
        "runner": {"name": _NAME, **(runner or {})},
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
