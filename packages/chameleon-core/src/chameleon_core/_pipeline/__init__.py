"""Pipelines: descriptions of runs, read from YAML. Error messages name the line and column."""

ENVIRONMENT = "CHAMELEON_RECORDS"
"""Environment variable for the meaning of ``default``: ``none``, or a place other than the user's
own."""

NONE, DEFAULT = "none", "default"
"""Values of the key ``records``: no record database, or the user's own."""
