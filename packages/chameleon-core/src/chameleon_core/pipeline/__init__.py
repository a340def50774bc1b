"""Pipelines: the description of a run, read from YAML. Errors name line and column."""
