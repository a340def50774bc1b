"""Runs a network with the functions of its C library.

This file is copied into the folder of the network, beside ``load.py``.
"""

import _ctypes
import contextlib
import ctypes
import functools
import pathlib
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]

POINTER, INTEGER, TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p


class Tensor(ctypes.Structure):
    """A library's description of an input or output."""

    _fields_ = (
        *(("name", TEXT), ("dtype", TEXT), ("rank", INTEGER)),
        *(("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t)),
    )


class Handle:
    """A network that its C library has opened; it is closed when no Python object refers to it."""

    def __init__(
        self,
        file: pathlib.Path,
        weights: pathlib.Path,
        manifest: Mapping[str, Any],
        threads: int,
        instances: int,
    ) -> None:
        library = _library(file)
        function = functools.partial(_function, library, file)
        closing = contextlib.ExitStack()
        # At the end of the process, a thread may still be in a call.
        weakref.finalize(self, closing.close).atexit = False
        closing.callback(_ctypes.dlclose, library._handle)  # noqa: SLF001

        for kind in ("input", "output"):
            tensor = function(kind, ctypes.POINTER(Tensor), INTEGER)
            own = [tensor(number)[0] for number in range(function(f"{kind}_count", INTEGER)())]
            described = [(struct.dtype.decode(), struct.shape[: struct.rank]) for struct in own]
            known = [(entry["dtype"], entry["shape"]) for entry in manifest[f"{kind}s"]]
            if kind == "output":
                known += [("int64", [1])] * len(manifest.get("counts", ()))
            if described != known:
                raise RuntimeError(f"{file} has other {kind}s than its manifest says")
        constants = manifest.get("constants")
        count = function("constant_count", INTEGER)()
        if constants is not None and len(constants) != count:
            raise RuntimeError(f"{file} has {count} constants, not {len(constants)}")
        self.error = function("error", TEXT)
        opened = function("open", POINTER, TEXT, INTEGER, INTEGER, POINTER)
        numbers = None if constants is None else (INTEGER * count)(*constants)
        self.pointer = opened(bytes(weights), threads, instances, numbers)
        if not self.pointer:
            raise RuntimeError(self.error().decode(errors="replace"))
        closing.callback(function("destroy", None, POINTER), self.pointer)
        self.run = function("compute", INTEGER, *[POINTER] * 3, INTEGER, POINTER)
        self.threads = int(function("threads", INTEGER, POINTER)(self.pointer))
        self.kernels = function("kernels", TEXT)().decode().splitlines()
        self.report = function("report", TEXT, POINTER)(self.pointer).decode(errors="replace")


def _library(file: pathlib.Path) -> Any:
    # For a known path, the system returns the library that it loaded before, even if the file has
    # been replaced. So each file gets a path of its own.
    try:
        path = "".join("./" if bit == "1" else "/" for bit in f"{file.stat().st_ino:b}")
        return ctypes.CDLL(f"{file.parent}/{path}{file.name}")
    except OSError as error:
        raise RuntimeError(f"{file} cannot be loaded: {error}") from error


def _function(library: Any, file: pathlib.Path, name: str, result: Any, *arguments: Any) -> Any:
    """A function of a library, with the types of its result and arguments."""
    try:
        symbol = library[f"{file.stem}_{name}"]
    except AttributeError as error:
        raise RuntimeError(f"{file} is no library of a network: {error}") from error
    symbol.restype, symbol.argtypes = result, arguments
    return symbol


def refusal(file: pathlib.Path) -> str:
    """Why this machine cannot run a network's library; empty if it can."""
    library = _library(file)
    try:
        reason = _function(library, file, "refusal", TEXT)()
        return "" if reason is None else str(reason.decode(errors="replace"))
    finally:
        _ctypes.dlclose(library._handle)  # noqa: SLF001


class Library:
    """Runs a network with the functions of its C library, with the arguments of ``Handle``."""

    def __init__(self, *arguments: Any) -> None:
        # Each running call has its own reference, so the network can be closed during calls.
        self._handle: Handle | None = Handle(*arguments)
        self.threads, self.kernels = self._handle.threads, self._handle.kernels
        self.report = self._handle.report

    def run(self, inputs: Arrays, kinds: list[Any], times: Any = None, extent: int = 0) -> Arrays:
        """Compute the outputs of one inference, or so many elements of the open axes."""
        handle = self._handle
        if handle is None:
            raise RuntimeError("the network is closed")
        outputs = [np.empty(shape, dtype) for shape, dtype in kinds]
        read, written = _pointers(inputs), _pointers(outputs)
        clock = None if times is None else times.ctypes.data
        try:
            if handle.run(handle.pointer, read, written, extent, clock) == 0:
                return outputs
            raise RuntimeError(handle.error().decode(errors="replace") or "a kernel failed")
        finally:
            del handle

    def close(self) -> None:
        """Close the network after running calls have ended."""
        self._handle = None


def _pointers(arrays: Arrays) -> Any:
    return (POINTER * len(arrays))(*[array.ctypes.data for array in arrays])
