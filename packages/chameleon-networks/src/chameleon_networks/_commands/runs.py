"""Reads from a run folder what the commands about networks need."""

from __future__ import annotations

from pathlib import Path

import attrs
from chameleon_core.api import (
    RunFile,
    RunView,
    TaskRecords,
    alternatives,
    best_of,
    check_sources,
    frontend_of,
    guessed,
    guesses_of,
    shares_records,
    spaces_of,
    subject_from_dict,
)
from chameleon_core.plugin_api import (
    ConfigError,
    RunFolderError,
    Subject,
    Task,
    Winner,
    recalled,
    winner,
)

from chameleon_networks._artifact.sources import check_source_files
from chameleon_networks._frontends.bucketed import ShapeFrontend
from chameleon_networks._frontends.lazy import LazyFrontend


def pipeline_of(run: RunView, *, trust_source: bool) -> Subject:
    """Read a run's model and design space, without the plugins that only a search needs."""
    document = run.document
    if not document:
        raise RunFolderError(
            f"{run.folder} does not say which pipeline it belongs to",
            hint="Run `chameleon run` on the pipeline first.",
        )
    pipeline = subject_from_dict(document)
    named = (pipeline.model.options, pipeline.space.options, *pipeline.sections.values())
    check_sources(run.folder, *named, trust_source=trust_source)
    return pipeline


def with_max_error(pipeline: Subject, max_error: float) -> Subject:
    """Return a pipeline in which another largest error of the network's outputs is accepted."""
    precision = pipeline.sections.get("precision")
    if precision is None:
        raise ConfigError(
            "--max-error chooses among types, and this run measured operators in float32 alone",
            hint="Name a 'precision' in the pipeline and run it into another folder.",
        )
    precision = attrs.evolve(precision, max_error=max_error)
    return attrs.evolve(pipeline, sections={**pipeline.sections, "precision": precision})


def network_of(pipeline: Subject, run: RunView, *, fresh: bool = False) -> ShapeFrontend:
    """Read the network of a run in its layout, perhaps although its files have changed."""
    if not fresh:
        check_unchanged(run.folder)
    frontend = frontend_of(pipeline)
    if not isinstance(frontend, LazyFrontend):
        raise ConfigError(
            f"the model of this run, {pipeline.model.name!r}, is no network",
            hint="Runs on builtin, torch and onnx models can be compiled.",
        )
    recalled(pipeline, frontend, run.store)
    return frontend.work


def check_unchanged(folder: Path) -> None:
    """Check that no file of the model has changed since a run delivered the network."""
    if (folder / RunFile.NETWORK).is_dir():
        check_source_files(folder / RunFile.NETWORK)


def delivered_in(folder: Path) -> Path:
    """The folder of the network that was delivered in a run folder."""
    delivered = folder / RunFile.NETWORK
    if not delivered.is_dir():
        raise RunFolderError(
            f"no network was delivered in {folder}",
            hint=f"Try `chameleon compile {folder}`; it says what is wrong.",
        )
    return delivered


def threads_of(run: RunView) -> int:
    """Number of threads that the kernels of a run were measured with."""
    return int(run.runner.get("threads") or 1)


def guesses_for(run: RunView, pipeline: Subject) -> tuple[Winner, ...]:
    """The predicted configuration, or the first guess, of each task without measurements."""
    operators = () if run.result is None else run.result.operators
    predicted = {Task(**row.task).key: row.guesses for row in operators if row.predicted}
    unmeasured = [
        stored.task for stored in run.store.tasks() if not run.store.measurements(stored.id)
    ]
    spaces = spaces_of(pipeline, unmeasured, among=True)
    guesses = (
        guessed(task, predicted.get(task.key, guesses_of(space)), predicted=task.key in predicted)
        for task, space in zip(unmeasured, spaces, strict=True)
    )
    return tuple(winner for winner in guesses if winner is not None)


def winners_of(run: RunView) -> tuple[Winner, ...]:
    """The winner of each measured task's final comparison, or else its fastest configuration."""
    winners, store, shared = [], run.store, shares_records(run.store)
    for stored in store.tasks():
        records = TaskRecords(store, stored)
        valid = {m.config: m for m in records.measured.values() if m.ok}
        comparison = store.comparison(stored.id)
        config = None if comparison is None else winner(comparison, shared=shared)
        tuned = {} if comparison is None else dict(comparison.tuned)
        best = None
        if config is not None:
            best = valid.get(config) or attrs.evolve(tuned[config], config=config)
        recorded = best is None
        best = best or best_of(valid.values(), shared=shared)
        if best is not None:
            others = alternatives(list(valid.values()), best.config)
            winners.append(
                Winner(
                    task=stored.task,
                    config=best.config,
                    seconds=best.cost,
                    alternatives=others,
                    recorded=recorded and records.is_recorded(best.config),
                )
            )
    return tuple(winners)
