"""Pipelines: descriptions of runs, read from YAML. Error messages name the line and column."""
