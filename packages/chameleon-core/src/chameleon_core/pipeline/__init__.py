"""Pipelines: what a run consists of, read from YAML with errors that say where."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chameleon_core.pipeline.load import from_dict, load_pipeline, subject_from_dict
    from chameleon_core.pipeline.nodes import PipelineError, Problem
    from chameleon_core.pipeline.precision import Precision
    from chameleon_core.pipeline.resolve import dump_pipeline
    from chameleon_core.pipeline.schema import (
        Budget,
        Requirement,
        ResolvedPipeline,
        Scope,
        StageSpec,
        Subject,
    )

_MODULES = {
    "load": ("from_dict", "load_pipeline", "subject_from_dict"),
    "nodes": ("PipelineError", "Problem"),
    "precision": ("Precision",),
    "resolve": ("dump_pipeline",),
    "schema": ("Budget", "Requirement", "ResolvedPipeline", "Scope", "StageSpec", "Subject"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: worker processes read options here, but no YAML."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Budget",
    "PipelineError",
    "Precision",
    "Problem",
    "Requirement",
    "ResolvedPipeline",
    "Scope",
    "StageSpec",
    "Subject",
    "dump_pipeline",
    "from_dict",
    "load_pipeline",
    "subject_from_dict",
]
