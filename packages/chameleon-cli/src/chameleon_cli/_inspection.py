"""Checks a pipeline before it runs, and lists its faults with their places.

The checks resolve the target and import the code of every stage. They also read the model and try
it, as a run does before it measures anything.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import click
from chameleon_core.api import NetworkResult, Registry, ResolvedPipeline, TaskSource
from chameleon_core.plugin_api import (
    ChameleonError,
    ConfigError,
    Frontend,
    PipelineError,
    PluginError,
    Task,
    load_factory,
)
from chameleon_system.api import usable_cores

from chameleon_cli._results_table import print_table

Result = TypeVar("Result")


def inspect_pipeline(pipeline: ResolvedPipeline) -> None:
    """Check all that a pipeline names, and raise a ``PipelineError`` with all faults."""
    inspection = _Inspection(pipeline)
    inspection.check()
    inspection.raise_problems()


def coverage_of(pipeline: ResolvedPipeline) -> Sequence[NetworkResult.OperatorCoverage]:
    """List the operators of a pipeline's model, and whether each can be compiled."""
    _look_for_source(pipeline)
    source = TaskSource(pipeline)
    with source.contract.call("survey the operators"):
        operators = source.frontend().coverage()
    if operators is None:
        raise ConfigError(
            f"a model of {pipeline.model.name!r} is no network with operators to survey",
            hint="Name an ONNX file, a program of torch.export (.pt2), or the pipeline of one.",
        )
    return operators


def show_coverage(operators: Sequence[NetworkResult.OperatorCoverage], *, as_json: bool) -> None:
    """Print operators; raise a ``ConfigError`` if some cannot be compiled."""
    if as_json:
        click.echo(json.dumps({"operators": [attrs.asdict(one) for one in operators]}))
    else:
        rows = [(one.name, str(one.occurrences), _supported(one)) for one in operators]
        print_table(("operator", "occurrences", "supported"), rows)
    missing = {reason: hint for one in operators for reason, hint in one.missing.items()}
    if missing:
        listed = "".join(f"\n  {reason}" for reason in missing)
        hint = "\n".join(dict.fromkeys(missing.values()))
        raise ConfigError(f"some operators cannot be compiled:{listed}", hint=hint)


def _supported(operator: NetworkResult.OperatorCoverage) -> str:
    if operator.missing:
        return "no"
    return f"{operator.assumed} by their name alone" if operator.assumed else "yes"


class _Inspection:
    """Collects the faults of one pipeline."""

    def __init__(self, pipeline: ResolvedPipeline) -> None:
        self._pipeline = pipeline
        self._faults: list[tuple[PipelineError.Problem, ChameleonError]] = []

    def check(self) -> None:
        """Check what needs only imports, and then the model, which takes longer."""
        pipeline = self._pipeline
        # The target comes first, because TVM is faster to import before torch, which a stage may
        # need.
        source = TaskSource(pipeline)
        target = self._try("target", source.target)
        for key in (*Registry.stages, "baselines", "records"):
            for spec in pipeline.stages(key):
                self._try(key, partial(load_factory, spec.factory))
        self._try("model", partial(_look_for_source, pipeline))
        self._try("output", partial(_check_output, pipeline.output))
        if target is None or self._faults:
            return
        tasks = self._try("model", partial(_tried_tasks, pipeline, target))
        if tasks is not None:
            self._try("runner", partial(pipeline.check_runner, tasks))
            self._try("fix" if pipeline.fix else "space", partial(source.spaces, tasks))

    def raise_problems(self) -> None:
        """Raise an error with all faults, if there are any."""
        if not self._faults:
            return
        hints = dict.fromkeys(error.hint for _, error in self._faults if error.hint)
        raised = PipelineError([fault for fault, _ in self._faults], hint="\n".join(hints) or None)
        codes = {error.exit_code for _, error in self._faults}
        if len(codes) == 1:
            (raised.exit_code,) = codes
        raise raised from self._faults[0][1]

    def _try(self, key: str, part: Callable[[], Result]) -> Result | None:
        try:
            return part()
        except ChameleonError as error:
            node = self._pipeline.root.get(key) or self._pipeline.root
            plugin = isinstance(error, PluginError)
            self._faults.append(
                (PipelineError.Problem(mark=node.mark, message=str(error), plugin=plugin), error)
            )
            return None


def _look_for_source(pipeline: ResolvedPipeline) -> None:
    source = TaskSource(pipeline)
    frontend = source.frontend()
    with source.contract.call("look for the model"):
        frontend.check_source()


def _check_output(folder: Path) -> None:
    """Raise an error if the run folder cannot be made or written."""
    hint = "name a folder that you may write"
    with ConfigError.on_os_error(f"{folder} cannot be the run folder", hint=hint):
        nearest = next(p for p in (folder, *folder.parents) if p.exists() or p.is_symlink())
    problem = "may not be written" if nearest.is_dir() else "is no folder"
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise ConfigError(f"{folder} cannot be the run folder: {nearest} {problem}", hint=hint)


def _tried_tasks(pipeline: ResolvedPipeline, target: str) -> list[Task]:
    """The model's tasks, after the checks that a run makes before its first measurement."""
    source = TaskSource(pipeline)
    frontend, contract = source.frontend(), source.contract
    if getattr(load_factory(pipeline.runner.factory), "measures_hardware", True):
        with contract.call("check what it is to deliver"):
            frontend.check(target, len(usable_cores()), None)
    with contract.call("settle what its tasks depend on"):
        frontend.decide(_NoTrials(target))
    return source.tasks(target, frontend)


class _NoTrials(Frontend.Trials):
    """Measures nothing, so that a frontend makes the choice that it makes without measurements."""

    measures_hardware = False

    def __init__(self, target: str) -> None:
        self.target = target

    def best_seconds(self, task: Task, guesses: int, *, seconds_to_beat: float = math.inf) -> None:
        """Return None, because nothing is measured."""
