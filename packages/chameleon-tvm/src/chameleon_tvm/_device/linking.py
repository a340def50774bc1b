"""Links compiled functions into a library, also for another machine that will run it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

from chameleon_tvm._late_tvm import codegen, tvm

LINKER = "CHAMELEON_LINKER"
"""Environment variable that names the cross compiler to link with, such as
``aarch64-linux-gnu-g++``. If it is ``none``, objects are sent to the device's machine and linked
there."""

_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


@attrs.frozen(kw_only=True)
class Linking:
    """The way in which the library of a kernel is linked for a target.

    Attributes:
        name: Name of the file: ``.so`` for a library, ``.tar`` for objects that are not linked yet.
        fcompile: Function that links objects, for ``export_library``; None for TVM's default.
    """

    name: str
    fcompile: Callable[..., Any] | None = None

    def export(self, compiled: tvm.runtime.Executable, folder: Path) -> str:
        """Write the library into a folder and return its name."""
        compiled.export_library(str(folder / self.name), fcompile=self.fcompile)
        return self.name


_OBJECTS = Linking(name="kernel.tar")
_LIBRARY = Linking(name="kernel.so")


def linking_for(target: tvm.target.Target) -> Linking:
    """Choose how to link for a target: on this machine with a suitable linker, or on the device."""
    linker = os.environ.get(LINKER, "")
    if linker == "none":
        return _OBJECTS
    if linker:
        return _cross_linker(linker)
    triple = host_triple(target)
    if architecture(triple) == architecture(own_triple()) and _system(triple) == "linux":
        return _LIBRARY
    for name in _linkers(triple):
        if shutil.which(name):
            return _cross_linker(name)
    return _OBJECTS


def own_triple() -> str:
    """This machine's triple, as LLVM names it."""
    return str(codegen.llvm_get_system_triple())


def host_triple(target: tvm.target.Target) -> str:
    """The triple of the processor that calls a target's kernels."""
    host = target if target.kind.name == "llvm" else target.host
    triple = "" if host is None else str(host.attrs.get("mtriple", ""))
    return triple or own_triple()


def architecture(triple: str) -> str:
    """The processor architecture in a triple such as ``amd64-linux-gnu``, by Linux's name."""
    first = triple.partition("-")[0].lower()
    return _ALIASES.get(first, first)


def _system(triple: str) -> str:
    return "linux" if "linux" in triple else triple.rpartition("-")[2]


def _linkers(triple: str) -> Iterable[str]:
    """Usual names of a cross compiler for a triple, with its vendor and without."""
    machine, *rest = triple.split("-")
    without_vendor = "-".join((machine, *(rest if "linux" in rest[:1] else rest[1:])))
    for prefix in dict.fromkeys((triple, without_vendor)):
        yield f"{prefix}-g++"
        yield f"{prefix}-gcc"


def _cross_linker(compiler: str) -> Linking:
    from tvm.support import cc  # noqa: PLC0415 - only cross linking needs it

    return Linking(name="kernel.so", fcompile=cc.cross_compiler(compiler))
