"""Pipelines: descriptions of runs, read from YAML. Error messages name the line and column."""

RECORDS_VARIABLE = "CHAMELEON_RECORDS"
"""Environment variable for the meaning of ``default``: ``none``, or a place other than the user's
own."""

NO_RECORDS, OWN_RECORDS = "none", "default"
"""Values of the key ``records``: no record database, or the user's own."""
