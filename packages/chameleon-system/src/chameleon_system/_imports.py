"""Imports libraries without optional modules or garbage collection, and names lazily."""

from __future__ import annotations

import ast
import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def block_import(module: str) -> Iterator[None]:
    """Let imports of a module fail in the context, so that a library skips it.

    A module that is imported already stays.
    """
    if absent := module not in sys.modules:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent and sys.modules.get(module) is None:
            sys.modules.pop(module, None)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Switch off Python's collection of reference cycles in the context.

    Imports of large libraries are then faster. Objects made meanwhile enter the oldest generation,
    unless the program itself has frozen objects.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # moves all objects to the oldest generation
            gc.enable()


def lazy_exports(
    module: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Make a module's ``__all__``, ``__getattr__`` and ``__dir__`` for lazy imports (PEP 562).

    The module exports what its source ``file`` imports under ``if TYPE_CHECKING``.
    """
    home_of = {}
    for statement in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(statement, ast.ImportFrom) and statement.col_offset:
            for name in statement.names:
                home_of[name.asname or name.name] = (statement.module or "", name.name)

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, own_name = home_of[name]
        imported = importlib.import_module(home)
        if not hasattr(imported, own_name):
            importlib.import_module(f"{home}.{own_name}")
        value = getattr(imported, own_name)
        setattr(sys.modules[module], name, value)
        return value

    return sorted(home_of), load, lambda: sorted({*vars(sys.modules[module]), *home_of})
