"""Imports of libraries without the optional modules that they would import too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Iterator[None]:
    """While the context is open, let imports of a module fail that is not imported yet."""
    absent = module not in sys.modules
    if absent:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent and sys.modules.get(module) is None:
            sys.modules.pop(module, None)
