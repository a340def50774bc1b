"""TVM, imported without torch and faster; modules of this package import TVM from here.

TVM's FFI imports torch if it is installed, which takes longer than the rest. Without the three
contexts below, TVM lists its functions again for each module, and raises slow C++ errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chameleon_system.api import block_import, pause_garbage_collection


@contextmanager
def _patch(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module while the context lasts."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def cache_function_names() -> Iterator[None]:
    """List TVM's functions again only after one was registered, while the context lasts."""
    from tvm_ffi import registry  # noqa: PLC0415 - only after ``block_import``

    original: Callable[[], list[str]] = registry.list_global_func_names
    known: list[str] = []

    def list_global_func_names() -> list[str]:
        has_name = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        if has_name(-1) != len(known):
            known[:] = original()
        return known

    with _patch(registry, "list_global_func_names", list_global_func_names):
        yield


@contextmanager
def check_types_in_python() -> Iterator[None]:
    """Detect missing types without slow C++ errors while the context lasts."""
    from tvm_ffi import core, registry  # noqa: PLC0415 - only after ``block_import``

    original = core._object_type_key_to_index  # noqa: SLF001
    known: set[str] = set()

    def _object_type_key_to_index(type_key: str) -> int | None:
        if type_key not in known:
            known.update(str(key) for key in registry.get_registered_type_keys())
        return original(type_key) if type_key in known else None

    with _patch(core, "_object_type_key_to_index", _object_type_key_to_index):
        yield


@contextmanager
def check_operators_in_python() -> Iterator[None]:
    """Detect missing or twice-named operators without a slow C++ error, while the context lasts."""
    from tvm_ffi import registry  # noqa: PLC0415 - only after ``block_import``

    original: Callable[..., Any] = registry.get_global_func
    known: set[str] = set()

    def operator_named(name: str) -> Any:
        if name not in known:
            names = original("ir.ListOpNames")()
            if len(names) != len(known):
                known.update(map(str, names))
            if name not in known:
                raise AttributeError(f"Operator {name} is not registered")
        return original("ir.GetOp")(name)

    def register_attribute(operator: str, key: str, value: Any, level: int) -> None:
        has_name = key == "TScriptPrinterName" and operator in known
        if not has_name or original("ir.OpGetAttr")(operator_named(operator), key) != value:
            original("ir.RegisterOpAttr")(operator, key, value, level)

    replacements = {"ir.GetOp": operator_named, "ir.RegisterOpAttr": register_attribute}

    def get_global_func(name: str, allow_missing: bool = False) -> Any:
        return replacements.get(name) or original(name, allow_missing)

    try:
        with _patch(registry, "get_global_func", get_global_func):
            yield
    finally:
        module = sys.modules.get("tvm.ir._ffi_api")
        for name in replacements if module is not None else ():
            setattr(module, name.removeprefix("ir."), original(name))


with (
    block_import("torch"),
    pause_garbage_collection(),
    cache_function_names(),
    check_types_in_python(),
    check_operators_in_python(),
):
    import tvm
    from tvm import te, tirx
    from tvm.s_tir import Schedule, Trace
    from tvm.target import Target, TargetKind, codegen
    from tvm_ffi import structural_map


def remove_argument_checks(kind: type) -> None:
    """Make the methods of a TVM class skip Python's checks of argument types, which C++ repeats."""
    for name, method in list(vars(kind).items()):
        unchecked = getattr(method, "__wrapped__", None)
        if unchecked is not None:
            setattr(kind, name, unchecked)


remove_argument_checks(Schedule)

__all__ = [
    "Schedule",
    "Target",
    "TargetKind",
    "Trace",
    "codegen",
    "structural_map",
    "te",
    "tirx",
    "tvm",
]
