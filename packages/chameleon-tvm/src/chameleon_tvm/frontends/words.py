"""Errors of libraries in a few words."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of what it says."""
    text = str(error).strip()
    kind = type(error).__name__
    return f"{kind}: {text.splitlines()[0][:300]}" if text else kind
