"""Fallbacks from errors that nobody expected: logged with their trace, and errors in tests."""

from __future__ import annotations

import os
from typing import Any

import structlog

STRICT = "CHAMELEON_STRICT"
"""Environment variable; if it is set, what nobody expected ends what was done."""

log = structlog.get_logger()


def fall_back(event: str, error: Exception, **words: Any) -> None:
    """Log what is done without, with the trace of the error that made it necessary.

    Args:
        event: the log's event.
        error: that nobody expected, which is being handled.
        words: what else the log says.

    Raises:
        Exception: the error, if ``CHAMELEON_STRICT`` is set.
    """
    if os.environ.get(STRICT):
        raise error
    text = str(error).strip()
    problem = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    log.warning(event, problem=problem, exc_info=error, **words)
