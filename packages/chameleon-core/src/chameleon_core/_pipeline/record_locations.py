"""The words and the environment variable that name record databases."""

import os

from chameleon_core._pipeline.nodes import expanded

NO_RECORDS, OWN_RECORDS = "none", "default"
"""Values of the key ``records``: no record database, or the user's own."""

_VARIABLE = "CHAMELEON_RECORDS"
"""Environment variable for the meaning of ``default``: ``none``, or a place other than the user's
own."""


def records_location(named: str | None = None) -> str | None:
    """The record database of a run: a URL or an absolute path.

    The result is ``none`` for no database, and None for the user's own database.

    Args:
        named: the database that the user names, as the key ``records`` of a pipeline has it. If it
            is None or empty, the environment variable ``CHAMELEON_RECORDS`` names the database.

    Raises:
        ConfigError: the path names a home folder that does not exist.
    """
    text = named or os.environ.get(_VARIABLE, "") or OWN_RECORDS
    if text == NO_RECORDS or "://" in text:
        return text
    return None if text == OWN_RECORDS else str(expanded(text).absolute())
