"""Handles unexpected errors in optional work: logs them with traceback, or raises them in tests."""

from __future__ import annotations

import os
from typing import Any

import structlog

STRICT = "CHAMELEON_STRICT"
"""Environment variable. If it is set, an unexpected error is raised, instead of logged."""

log = structlog.get_logger()


def fall_back(event: str, error: Exception, **words: Any) -> None:
    """Log an unexpected error of optional work, so that the caller can go on without that work.

    Args:
        event: the message of the log entry. It names the result that the caller now lacks.
        error: the unexpected error, which is being handled.
        words: further fields of the log entry, such as the task's name.

    Raises:
        Exception: the error, if ``CHAMELEON_STRICT`` is set.
    """
    if os.environ.get(STRICT):
        raise error
    text = str(error).strip()
    problem = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    log.warning(event, problem=problem, exc_info=error, **words)
