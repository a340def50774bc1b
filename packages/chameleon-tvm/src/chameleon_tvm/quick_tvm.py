"""TVM imported without torch and without detours: modules of this package take TVM from here.

TVM's FFI imports torch if it is installed, for tensors that are shared without a copy. That takes
longer than the rest of TVM, in the command line and in every worker, and is used nowhere. More than
half of the rest is spent on three things. It collects garbage when there is none. It lists the two
thousand names of TVM's functions anew for each of its fifty modules. It
looks up symbols for the C++ backtrace of an unseen error, about a type that a CPU's TVM does not
have.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chameleon_system.imports import without


@contextmanager
def without_collecting() -> Iterator[None]:
    """Switch the collection of cyclic garbage off while the context lasts."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def names_listed_once() -> Iterator[None]:
    """Let TVM's FFI list its functions again only when there are more of them."""
    from tvm_ffi import registry  # noqa: PLC0415 - importing it has to wait for ``without``

    original: Callable[[], list[str]] = registry.list_global_func_names
    known: list[str] = []

    def list_global_func_names() -> list[str]:
        named = registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        if named(-1) != len(known):
            known[:] = original()
        return known

    registry.list_global_func_names = list_global_func_names
    try:
        yield
    finally:
        registry.list_global_func_names = original


@contextmanager
def absent_types_without_errors() -> Iterator[None]:
    """Let TVM's FFI say that there is no such type without raising an error in C++."""
    from tvm_ffi import core, registry  # noqa: PLC0415 - importing it has to wait for ``without``

    original = core._object_type_key_to_index  # noqa: SLF001
    known: set[str] = set()

    def _object_type_key_to_index(type_key: str) -> int | None:
        if type_key not in known:
            known.update(str(key) for key in registry.get_registered_type_keys())
        return original(type_key) if type_key in known else None

    core._object_type_key_to_index = _object_type_key_to_index  # noqa: SLF001
    try:
        yield
    finally:
        core._object_type_key_to_index = original  # noqa: SLF001


with (
    without("torch"),
    without_collecting(),
    names_listed_once(),
    absent_types_without_errors(),
):
    import tvm
    from tvm import te, tirx
    from tvm.s_tir import Schedule, Trace
    from tvm.target import Target, TargetKind, codegen


def without_checks(kind: type) -> None:
    """Have the methods of a class take their arguments as they are.

    TVM compares each argument of a schedule's step with its annotation in Python, which takes
    longer than the step. The step refuses unfit arguments as well.

    Args:
        kind: whose methods are replaced by those that its decorated ones call.
    """
    for name, method in list(vars(kind).items()):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None:
            setattr(kind, name, plain)


without_checks(Schedule)

__all__ = ["Schedule", "Target", "TargetKind", "Trace", "codegen", "te", "tirx", "tvm"]
