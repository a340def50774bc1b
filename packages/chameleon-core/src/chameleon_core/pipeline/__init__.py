"""Pipelines: what a run consists of, read from YAML with errors that say where."""

from chameleon_core.pipeline.schema import (
    Budget,
    Requirement,
    ResolvedPipeline,
    Scope,
    StageSpec,
)

__all__ = [
    "Budget",
    "Requirement",
    "ResolvedPipeline",
    "Scope",
    "StageSpec",
]
