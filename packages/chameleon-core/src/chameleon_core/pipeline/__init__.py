"""Pipelines: what a run consists of, read from YAML with errors that say where."""
