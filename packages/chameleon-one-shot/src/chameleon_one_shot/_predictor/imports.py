"""Imports a library without some modules that it would import."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from types import ModuleType

from chameleon_system.api import block_import, pause_garbage_collection


def import_without(library: str, *modules: str) -> ModuleType:
    """Import a library while imports of some other modules fail.

    If the library is imported already, it stays as it is. Otherwise a later import statement
    imports it anew, with all modules.
    """
    if library in sys.modules:
        return importlib.import_module(library)  # waits if another thread is importing it
    with ExitStack() as absent:
        absent.enter_context(pause_garbage_collection())
        for module in modules:
            absent.enter_context(block_import(module))
        imported = importlib.import_module(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        del sys.modules[name]
    return imported
