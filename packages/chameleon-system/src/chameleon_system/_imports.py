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
def without(module: str) -> Iterator[None]:
    """Make imports of a module fail while the context is open, so that a library skips it.

    A module that is imported already stays.

    Args:
        module: the name of the module.
    """
    if absent := module not in sys.modules:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent and sys.modules.get(module) is None:
            sys.modules.pop(module, None)


@contextmanager
def without_collecting() -> Iterator[None]:
    """Switch off Python's collection of reference cycles while the context lasts.

    Imports of large libraries are then faster. Later collections are faster too: they take what was
    made meanwhile for objects that live long, unless the program itself has frozen objects.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def lazy_exports(
    module: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Make a module's ``__all__``, ``__getattr__`` and ``__dir__`` for lazy imports (PEP 562).

    The module exports what it imports under ``if TYPE_CHECKING``. So types are checked, and nobody
    has to write the names twice.

    Args:
        module: the name of the module that exports names.
        file: the module's source file.
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
