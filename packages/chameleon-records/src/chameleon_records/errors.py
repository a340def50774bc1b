"""The error that all record databases raise."""

from __future__ import annotations

from chameleon_core.errors import ChameleonError, ExitCode


class RecordsError(ChameleonError):
    """A record database cannot be read or written as requested."""

    exit_code = ExitCode.USAGE
