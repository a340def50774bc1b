"""Imports libraries without optional modules, and without garbage collection."""

from __future__ import annotations

import gc
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


@contextmanager
def without_collecting() -> Iterator[None]:
    """Switch off Python's collection of reference cycles while the context lasts.

    Imports of large libraries are then faster.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
