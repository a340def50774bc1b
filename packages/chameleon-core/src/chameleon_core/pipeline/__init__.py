"""Pipelines: what a run consists of, read from YAML with errors that say where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_core.lazy import lazily

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

# Worker processes read options here, but no YAML.
__getattr__ = lazily(
    __name__,
    {
        "load": ("from_dict", "load_pipeline", "subject_from_dict"),
        "nodes": ("PipelineError", "Problem"),
        "precision": ("Precision",),
        "resolve": ("dump_pipeline",),
        "schema": ("Budget", "Requirement", "ResolvedPipeline", "Scope", "StageSpec", "Subject"),
    },
)

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
