"""What nobody expected ends a test, and is logged with its trace elsewhere."""

from __future__ import annotations

import pytest
import structlog
from chameleon_core.fallbacks import STRICT, fall_back


def test_an_error_in_tests_is_raised():
    error = ValueError("no such loop")
    with pytest.raises(ValueError, match="no such loop") as caught:
        fall_back("left_as_it_is", error)
    assert caught.value is error


def test_a_user_gets_the_fallback_and_its_reason(monkeypatch):
    monkeypatch.delenv(STRICT)
    error = ValueError("no such loop\nand more")
    with structlog.testing.capture_logs() as lines:
        fall_back("left_as_it_is", error, function="f")
    [line] = lines
    assert line["problem"] == "ValueError: no such loop"
    assert (line["event"], line["function"]) == ("left_as_it_is", "f")
    assert line["exc_info"] is error
