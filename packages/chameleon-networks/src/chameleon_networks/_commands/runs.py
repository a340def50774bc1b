"""Reads from a run folder what the commands about networks need."""

from __future__ import annotations

from pathlib import Path

import attrs
from chameleon_core.api import RunFile, RunView
from chameleon_core.plugin_api import ConfigError, ModelChoice, RunFolderError

from chameleon_networks._artifact.sources import check_source_files
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._frontends.bucketed import ShapeFrontend
from chameleon_networks._frontends.lazy import LazyFrontend


def with_max_error(pipeline: ModelChoice, max_error: float) -> ModelChoice:
    """Return a pipeline in which another largest error of the network's outputs is accepted."""
    precision = pipeline.sections.get("precision")
    if precision is None:
        raise ConfigError(
            "--max-error chooses among types, and this run measured operators in float32 alone",
            hint="Name a 'precision' in the pipeline and run it into another folder.",
        )
    precision = attrs.evolve(precision, max_error=max_error)
    return attrs.evolve(pipeline, sections={**pipeline.sections, "precision": precision})


def network_of(pipeline: ModelChoice, run: RunView, *, fresh: bool = False) -> ShapeFrontend:
    """Read the network of a run in its layout, perhaps although its files have changed."""
    if not fresh:
        check_unchanged(run.folder)
    frontend = run.frontend(pipeline)
    if not isinstance(frontend, LazyFrontend):
        raise ConfigError(
            f"the model of this run, {pipeline.model.name!r}, is no network",
            hint="Runs on builtin, torch and onnx models can be compiled.",
        )
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


def bucket_folder(delivered: Path, bucket: str) -> Path:
    """The folder of a bucket, or the delivered folder itself for an empty name."""
    if not bucket:
        return delivered
    known = read_manifest(delivered)["buckets"]
    return delivered / str(next(entry["folder"] for entry in known if entry["name"] == bucket))


def threads_of(run: RunView) -> int:
    """Number of threads that the kernels of a run were measured with."""
    return int(run.runner.get("threads") or 1)
