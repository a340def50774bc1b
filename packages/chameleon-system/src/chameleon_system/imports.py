"""Imports libraries without the optional modules that they would import too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Iterator[None]:
    """Make imports of a module fail while the context is open, so that a library skips it.

    A module that is imported already stays.

    Args:
        module: the name of the module.
    """
    absent = module not in sys.modules
    if absent:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent and sys.modules.get(module) is None:
            sys.modules.pop(module, None)
