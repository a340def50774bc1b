"""Makes an artifact of a program: a library compiled and linked for its target, and its inputs."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import structlog
from chameleon_core.plugin_api import Task
from chameleon_system.api import temporary_folder

from chameleon_tvm._building.kernel import Program
from chameleon_tvm._building.lowering import lower_function
from chameleon_tvm._building.remote.artifact import (
    Recipe,
    output_arguments,
    store_input,
    write_recipe,
)
from chameleon_tvm._device.linking import linking_for
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._late_tvm import tvm

_log = structlog.get_logger()

_MODE = "TVM_CUDA_COMPILE_MODE"
_RUNTIME = "libtvm_runtime_cuda.so"
_CREATE = "ffi.Module.create.cuda"
_DRIVER = "libcuda.so.1"
_NOT_INITIALISED = 3
_FUNCTIONS = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
"""Functions of the driver's library that TVM's CUDA runtime uses."""


@contextlib.contextmanager
def machine_code_context(target: tvm.target.Target) -> Iterator[None]:
    """Compile for a CUDA target to machine code while the context lasts, if this is possible.

    If nvcc or TVM's CUDA runtime is missing, the artifact holds CUDA source instead.
    """
    if target.kind.name != "cuda":
        yield
        return
    if _can_compile_cuda():
        with target:
            yield
    else:
        yield


@functools.cache
def _can_compile_cuda() -> bool:
    """Whether this process can compile CUDA kernels to machine code, after preparing it to."""
    if not (shutil.which("nvcc") or importlib.util.find_spec("cuda.bindings") is not None):
        _log.info("cuda_source_exported", reason="neither nvcc nor cuda-bindings is installed here")
        return False
    if shutil.which("nvcc"):
        os.environ.setdefault(_MODE, "nvcc")
    if tvm.get_global_func(_CREATE, allow_missing=True) is not None:
        return True
    try:
        _load_runtime()
    except (OSError, subprocess.SubprocessError) as error:
        _log.info("cuda_source_exported", reason=str(error))
    return tvm.get_global_func(_CREATE, allow_missing=True) is not None


def _load_runtime() -> None:
    """Load TVM's CUDA runtime without a driver, with a stub of the driver's library.

    Raises:
        OSError: TVM was built without CUDA, or CUDA's runtime is missing.
        subprocess.SubprocessError: There is no C compiler.
    """
    root = next((path for path in _library_folders() if (path / _RUNTIME).exists()), None)
    if root is None:
        raise OSError(f"this TVM has no {_RUNTIME}")
    with temporary_folder() as folder:
        library = Path(folder) / _DRIVER
        functions = "\n".join(
            f"int {name}(void) {{ return {_NOT_INITIALISED}; }}" for name in _FUNCTIONS
        )
        subprocess.run(
            ["cc", "-shared", "-fPIC", f"-Wl,-soname,{_DRIVER}", "-xc", "-", "-o", str(library)],  # noqa: S607 - the compiler on the user's path
            input=functions.encode(),
            check=True,
            capture_output=True,
        )
        # Loaded libraries stay when their files are gone.
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(root / _RUNTIME), ctypes.RTLD_GLOBAL)


def _library_folders() -> list[Path]:
    return [Path(folder) for folder in tvm.libinfo.package_lib_paths()]


def export_program(program: Program, target: str, folder: Path, *, task: Task | None) -> None:
    """Write all files that a device needs; ``task`` undoes the layouts of outputs."""
    resolved = tvm_target(target)
    with machine_code_context(resolved):
        compiled = lower_function(program.function, resolved, plain_loops=program.plain_loops)
        library = linking_for(resolved).export(compiled, folder)
    inputs = [store_input(folder, array) for array in program.inputs]
    outputs = output_arguments(program.output_buffers)
    recipe = Recipe(
        target=target,
        library=library,
        arguments=(*inputs, *outputs),
        task=None if task is None else task.to_json(),
    )
    write_recipe(folder, recipe)
