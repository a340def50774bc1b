"""TVM, imported without torch and faster; modules of this package import TVM from this module.

If torch is installed, TVM's FFI imports it to share tensors without a copy. The import of torch
takes longer than the rest of TVM, in the command line and in every worker, and Chameleon does not
need it. More than half of the remaining time goes to three things that this module avoids. Python
collects garbage although there is none. TVM lists the two thousand names of its functions again for
each of its fifty modules. TVM also looks up symbols for C++ back traces of errors that nobody sees.
These errors are about types or operators that a CPU build of TVM does not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chameleon_system.api import block_import, pause_garbage_collection


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give a module another attribute while the context lasts."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def names_listed_once() -> Iterator[None]:
    """Make the import of TVM faster within this context.

    During the import, TVM's FFI asks for the names of all registered functions many times. In this
    context, it collects the names anew only if functions were registered since the last time.
    """
    from tvm_ffi import registry  # noqa: PLC0415 - importing it has to wait for ``block_import``

    original: Callable[[], list[str]] = registry.list_global_func_names
    known: list[str] = []

    def list_global_func_names() -> list[str]:
        named = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        if named(-1) != len(known):
            known[:] = original()
        return known

    with _replaced(registry, "list_global_func_names", list_global_func_names):
        yield


@contextmanager
def absent_types_without_errors() -> Iterator[None]:
    """Make TVM's import faster: within this context, a missing type causes no slow C++ error."""
    from tvm_ffi import core, registry  # noqa: PLC0415 - importing it has to wait for ``block_import``

    original = core._object_type_key_to_index  # noqa: SLF001
    known: set[str] = set()

    def _object_type_key_to_index(type_key: str) -> int | None:
        if type_key not in known:
            known.update(str(key) for key in registry.get_registered_type_keys())
        return original(type_key) if type_key in known else None

    with _replaced(core, "_object_type_key_to_index", _object_type_key_to_index):
        yield


@contextmanager
def operators_without_errors() -> Iterator[None]:
    """Make TVM's import faster: within this context, a missing operator causes no C++ error.

    TVM's import gives operators the names that scripts use. For this it looks up some operators
    that do not exist, and names one operator a second time. Both cause C++ errors, which are slow.
    In this context, Python detects both cases without such an error.
    """
    from tvm_ffi import registry  # noqa: PLC0415 - importing it has to wait for ``block_import``

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
        named = key == "TScriptPrinterName" and operator in known
        if not named or original("ir.OpGetAttr")(operator_named(operator), key) != value:
            original("ir.RegisterOpAttr")(operator, key, value, level)

    instead = {"ir.GetOp": operator_named, "ir.RegisterOpAttr": register_attribute}

    def get_global_func(name: str, allow_missing: bool = False) -> Any:
        return instead.get(name) or original(name, allow_missing)

    try:
        with _replaced(registry, "get_global_func", get_global_func):
            yield
    finally:
        module = sys.modules.get("tvm.ir._ffi_api")
        for name in instead if module is not None else ():
            setattr(module, name.removeprefix("ir."), original(name))


with (
    block_import("torch"),
    pause_garbage_collection(),
    names_listed_once(),
    absent_types_without_errors(),
    operators_without_errors(),
):
    import tvm
    from tvm import te, tirx
    from tvm.s_tir import Schedule, Trace
    from tvm.target import Target, TargetKind, codegen


def without_checks(kind: type) -> None:
    """Make the methods of a TVM class skip the checks of their arguments' types.

    TVM compares each argument of a schedule's method with its annotation in Python, which takes
    longer than the method itself. The method's C++ code also refuses wrong arguments.

    Args:
        kind: The class. Each of its decorated methods is replaced by the undecorated method.
    """
    for name, method in list(vars(kind).items()):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None:
            setattr(kind, name, plain)


without_checks(Schedule)

__all__ = ["Schedule", "Target", "TargetKind", "Trace", "codegen", "te", "tirx", "tvm"]
