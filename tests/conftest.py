"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_nobody_configured_them() -> Iterator[None]:
    """The command line sets a level for the whole process, which the next test must not inherit."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
