"""Pipelines: what a run consists of, read from YAML with errors that say where."""

from chameleon_core.pipeline.load import from_dict, load_pipeline, subject_from_dict
from chameleon_core.pipeline.nodes import PipelineError, Problem
from chameleon_core.pipeline.resolve import dump_pipeline
from chameleon_core.pipeline.schema import (
    Budget,
    Requirement,
    ResolvedPipeline,
    Scope,
    StageSpec,
    Subject,
)

__all__ = [
    "Budget",
    "PipelineError",
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
