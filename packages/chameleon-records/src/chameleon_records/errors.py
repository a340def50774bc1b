"""The error of every database: what is wrong with it, and what to do."""

from __future__ import annotations

from chameleon_core.errors import ChameleonError, ExitCode


class RecordsError(ChameleonError):
    """A record database cannot be read or written as it is asked."""

    exit_code = ExitCode.USAGE
