"""Reads from a run folder what the commands about networks need."""

from __future__ import annotations

from pathlib import Path

import attrs
from chameleon_core.api import NETWORK, RunView
from chameleon_core.plugin_api import ConfigError, RunFolderError, Subject

from chameleon_networks._delivery.bucketed import NetworkWork
from chameleon_networks._delivery.frontends import NetworksFrontend


def with_max_error(pipeline: Subject, max_error: float) -> Subject:
    """Return a pipeline in which another largest error of the network's outputs is accepted.

    Args:
        pipeline: The pipeline of a run.
        max_error: The largest accepted error.

    Raises:
        ConfigError: The pipeline has no section ``precision``. Its run measured operators in
            float32 only, so another accepted error would not lead to other dtypes.
    """
    precision = pipeline.sections.get("precision")
    if precision is None:
        raise ConfigError(
            "--max-error chooses among types, and this run measured operators in float32 alone",
            hint="Name a 'precision' in the pipeline and run it into another folder.",
        )
    precision = attrs.evolve(precision, max_error=max_error)
    return attrs.evolve(pipeline, sections={**pipeline.sections, "precision": precision})


def network_of(pipeline: Subject, run: RunView) -> NetworkWork:
    """Read the network of a run, in the layout (order of axes) that the run chose.

    Args:
        pipeline: The pipeline of the run.
        run: The run folder.

    Raises:
        ConfigError: The model of the run is no network.
    """
    frontend = run.frontend(pipeline)
    if not isinstance(frontend, NetworksFrontend):
        raise ConfigError(
            f"the model of this run, {pipeline.model.name!r}, is no network",
            hint="Runs on builtin, torch and onnx models can be compiled.",
        )
    return frontend.work


def delivered_in(folder: Path) -> Path:
    """The folder of the network that was delivered in a run folder.

    Args:
        folder: The run folder.

    Raises:
        RunFolderError: No network was delivered.
    """
    delivered = folder / NETWORK
    if not delivered.is_dir():
        raise RunFolderError(
            f"no network was delivered in {folder}",
            hint=f"Try `chameleon compile {folder}`; it says what is wrong.",
        )
    return delivered


def threads_of(run: RunView) -> int:
    """Number of threads that the kernels of a run were measured with."""
    return int(run.runner.get("threads") or 1)
