"""Loads the compiled network in this folder; `needs` in manifest.json says what else it takes.

`load()` returns a function that any number of threads may call.
"""

import _ctypes
import ctypes
import hashlib
import json
import os
import pathlib
import re
import runpy
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

import numpy as np

Arrays = list[np.ndarray[Any, Any]]


class Library:
    """A delivered library, and a handle of the network in it.

    Args:
        file: the library.
        name: that its functions begin with.
        weights: the file of weights.
        threads: that compute; 0 for the library's own choice.
        instances: inferences that may run at the same time.
        constants: which constants of the weights are the network's; all of them if None.
        tvm: whether the kernels call functions of TVM's.

    Raises:
        RuntimeError: the library cannot be loaded, or refuses this machine or the weights.
    """

    def __init__(
        self,
        file: pathlib.Path,
        name: str,
        weights: pathlib.Path,
        *,
        threads: int,
        instances: int,
        constants: list[int] | None,
        tvm: bool,
    ) -> None:
        try:
            library = ctypes.CDLL(str(file))
        except OSError as error:
            raise RuntimeError(f"{file} cannot be loaded: {error}") from error
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        opened = getattr(library, f"{name}_open")
        opened.restype, opened.argtypes = pointer, (ctypes.c_char_p, integer, integer, pointer)
        close = getattr(library, f"{name}_destroy")
        close.restype, close.argtypes = None, (pointer,)
        self._run = getattr(library, f"{name}_profile")
        self._run.argtypes = (pointer,) * 4
        self._error = getattr(library, f"{name}_error")
        self._error.restype = ctypes.c_char_p
        names = getattr(library, f"{name}_kernels")
        names.restype = ctypes.c_char_p
        if tvm:
            connect_tvm(getattr(library, f"{name}_use_tvm"))
        numbers = None if constants is None else (integer * len(constants))(*constants)
        path = os.fsencode(weights)
        self._handle = opened(path, threads, instances, numbers)
        if not self._handle:
            problem = self._error().decode(errors="replace")
            _ctypes.dlclose(library._handle)  # noqa: SLF001
            raise RuntimeError(problem)
        count = getattr(library, f"{name}_threads")
        count.argtypes = (pointer,)
        self.threads = int(count(self._handle))
        self.kernels = names().decode().splitlines()
        self.close = weakref.finalize(self, _closed, library, close, self._handle)

    def run(self, inputs: Arrays, outputs: Arrays, times: Any = None) -> None:
        """One inference, on arrays of the right shapes and types without gaps.

        Args:
            inputs: are read.
            outputs: are written.
            times: an array of int64 for the nanoseconds of each kernel, if they are wanted.

        Raises:
            RuntimeError: a kernel failed, or the network is closed.
        """
        if not self.close.alive:
            raise RuntimeError("the network is closed")
        read, written = _pointers(inputs), _pointers(outputs)
        clock = None if times is None else times.ctypes.data
        if self._run(self._handle, read, written, clock) != 0:
            raise RuntimeError(self._error().decode(errors="replace") or "a kernel failed")


def _pointers(arrays: Arrays) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])


def _closed(library: Any, close: Any, handle: int) -> None:
    close(handle)
    _ctypes.dlclose(library._handle)  # noqa: SLF001


TVM_NAMES = (
    *("FunctionGetGlobal", "FunctionCall", "HandleInitOnce"),
    *("ErrorMoveFromRaised", "ObjectDecRef"),
)
"""Functions of TVM's FFI, in the order of ``struct tvm_functions``."""


def connect_tvm(connect: Any) -> None:
    """Tell a library where it finds functions of TVM's, such as sorting."""
    import tvm  # noqa: F401, PLC0415 - registers them
    from tvm_ffi.libinfo import load_lib_ctypes  # noqa: PLC0415

    ffi = load_lib_ctypes("apache-tvm-ffi", "tvm_ffi", "RTLD_LOCAL")
    functions = [ctypes.cast(getattr(ffi, f"TVMFFI{name}"), ctypes.c_void_p) for name in TVM_NAMES]
    connect((ctypes.c_void_p * len(functions))(*functions))


class Machine:
    """A network that TVM's virtual machine runs, for one caller at a time.

    Args:
        file: the library.
        manifest: of its folder.
        threads: that compute; 0 for those that the network was measured with.
    """

    def __init__(self, file: pathlib.Path, manifest: dict[str, Any], threads: int) -> None:
        self.threads = threads or min(manifest["threads"], _usable_cores())
        # TVM reads its variable when it starts its threads, and starts too few without it.
        given = os.environ.setdefault("TVM_NUM_THREADS", str(self.threads))
        import tvm  # noqa: PLC0415 - most networks need no TVM
        from tvm import relax  # noqa: PLC0415

        check_processor(manifest)
        self._start = tvm.get_global_func("runtime.config_threadpool")
        self._threads = int(given)
        self._computing = threading.RLock()
        self._process = os.getpid()
        self._unbound(self._start, 1, self._threads)
        module = tvm.runtime.load_module(str(file))
        self.machine: Any = relax.VirtualMachine(module, tvm.cpu())
        # Filled anew by each call, which memory fresh from the system would slow down.
        kinds = [(wanted["shape"], wanted["dtype"]) for wanted in manifest["inputs"]]
        self._tensors = [tvm.runtime.empty(shape, dtype) for shape, dtype in kinds]

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs of an inference.

        Raises:
            RuntimeError: the process was forked since; TVM's threads are gone then.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "TVM's virtual machine runs this network and does not survive a fork: load it in "
                "the child process, or start that by 'spawn'"
            )
        with self._computing:
            for tensor, array in zip(self._tensors, inputs, strict=True):
                tensor.copyfrom(array)
            found = self._unbound(self.machine["main"], *self._tensors)
            return [one.numpy() for one in ([found] if hasattr(found, "numpy") else found)]

    def _unbound(self, function: Any, *arguments: Any) -> Any:
        """Call a function of TVM's, which binds its caller to a core, and take that back."""
        if not hasattr(os, "sched_setaffinity"):
            return function(*arguments)
        before = os.sched_getaffinity(0)
        try:
            return function(*arguments)
        finally:
            if os.sched_getaffinity(0) != before:
                os.sched_setaffinity(0, before)

    def close(self) -> None:
        """Give back its memory."""
        self.machine = None


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CPUINFO = pathlib.Path("/proc/cpuinfo")


def check_processor(manifest: dict[str, Any]) -> None:
    """See that this process may run what a manifest describes; libraries look themselves.

    Raises:
        RuntimeError: the CPU lacks a feature, or the system refuses AMX.
    """
    text = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else ""
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(re.sub(r"[._-]", "", lines[0]).split()) if lines else None
    lacking = [name for name, flag in manifest["cpu_flags"].items() if flags and flag not in flags]
    if lacking:
        raise RuntimeError(f"this CPU lacks {', '.join(lacking)}, which the network was built for")
    if "amx" in manifest.get("permissions", ()):
        # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) of Linux on x86-64.
        words = map(ctypes.c_long, (158, 0x1023, 18))
        if ctypes.CDLL(None, use_errno=True).syscall(*words) != 0:
            why = os.strerror(ctypes.get_errno())
            raise RuntimeError(f"the network needs AMX, and the system refuses arch_prctl: {why}")


class Network:
    """A network as a function: one array per input in, a new array out, or a list of several.

    Any number of threads may call it; a call waits while all instances are in use. Arrays are what
    NumPy takes: tensors of torch, anything with DLPack or the array interface, without a copy if
    their type and layout are right. A child process of a fork may go on calling it.

    Args:
        manifest: of its folder.
        engine: runs it.

    Attributes:
        threads: that compute an inference.
    """

    def __init__(self, manifest: dict[str, Any], engine: Any) -> None:
        self._manifest = manifest
        self.engine = engine
        self.threads = engine.threads
        self._wanted = [
            (one["name"], tuple(one["shape"]), _dtype(one["dtype"])) for one in manifest["inputs"]
        ]
        self._made = [(one["shape"], _dtype(one["dtype"])) for one in manifest["outputs"]]

    def __call__(self, *inputs: Any) -> Any:
        """Its outputs; ``ValueError`` if inputs are missing or have other shapes."""
        outputs = self.outputs(self.arrays(inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def arrays(self, inputs: Any) -> Arrays:
        """Inputs as arrays that kernels read; ``ValueError`` if they do not fit."""
        if len(inputs) != len(self._wanted):
            names = ", ".join(name for name, _, _ in self._wanted)
            raise ValueError(f"the network takes {names}, not {len(inputs)} arrays")
        arrays = []
        for given, (name, shape, dtype) in zip(inputs, self._wanted, strict=True):
            dlpack = hasattr(given, "__dlpack__") and not hasattr(given, "__array__")
            array = np.from_dlpack(given) if dlpack else given
            array = np.asarray(array, dtype, order="C")
            if array.shape != shape:
                raise ValueError(f"{name} must have shape {list(shape)}")
            arrays.append(array)
        return arrays

    def outputs(self, arrays: Arrays, times: Any = None) -> Arrays:
        """The outputs for what ``arrays`` returned; ``times`` is for ``Library.run``."""
        if isinstance(self.engine, Machine):
            return self.engine.run(arrays)
        outputs = [np.empty(shape, dtype) for shape, dtype in self._made]
        self.engine.run(arrays, outputs, times)
        return outputs

    def close(self) -> None:
        """Wait for calls that run, end the threads and give back the memory; safe to repeat."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - a type that NumPy lacks

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def checked_manifest(folder: pathlib.Path) -> dict[str, Any]:
    """The manifest of a folder, once its digest and the files that it names are right.

    Raises:
        RuntimeError: something is missing, cut off or changed.
    """
    file = folder / "manifest.json"
    try:
        manifest: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise RuntimeError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RuntimeError(f"{file} is damaged; deliver the network again") from error
    digest = manifest.pop("digest", None) if isinstance(manifest, dict) else ""
    if digest is None:
        raise RuntimeError(f"{file} is of an earlier version; deliver the network again")
    if digest != digest_of(manifest):
        raise RuntimeError(f"{file} was changed since it was delivered; deliver the network again")
    for name, known in manifest["files"].items():
        _check_file(inside(folder, name), known)
    return dict(manifest)


def digest_of(manifest: dict[str, Any]) -> str:
    """The digest of what a manifest says."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_file(file: pathlib.Path, known: dict[str, Any]) -> None:
    try:
        size = file.stat().st_size
        if size != known["bytes"]:
            problem = "is cut off" if size < known["bytes"] else "has grown"
            raise RuntimeError(f"{file} {problem}; deliver the network again")
        # The library compares weights with their checksums itself.
        if "sha256" not in known:
            return
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise RuntimeError(f"{file} cannot be read: {error.strerror}") from error
    if digest != known["sha256"]:
        raise RuntimeError(f"{file} was changed since it was delivered; deliver the network again")


def inside(folder: pathlib.Path, name: str) -> pathlib.Path:
    """A file that a manifest names; ``RuntimeError`` if it lies outside of the folder."""
    parts = pathlib.PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise RuntimeError(f"{folder} names {name}, which is no file of its own")
    return folder.joinpath(*parts)


def load(
    folder: str | pathlib.Path = pathlib.Path(__file__).parent,
    *,
    threads: int = 0,
    instances: int = 1,
) -> Callable[..., Any]:
    """The network of a folder as a function; see ``Network``.

    One that was compiled for several shapes is a ``Buckets`` of ``buckets.py``.

    Args:
        folder: that ``chameleon run`` or ``chameleon compile`` delivered.
        threads: that compute an inference. If 0: the variable ``NETWORK_NUM_THREADS`` if it is set
            (``KERNEL_NUM_THREADS`` for an operator), else ``OMP_NUM_THREADS`` or as many as the
            network was measured with, but no more than this process may use.
        instances: inferences that run at the same time, each with memory of its own. They share
            weights and threads.

    Raises:
        RuntimeError: a file is missing, cut off or changed, or the network was built for a CPU with
            features that this one lacks.
    """
    folder = pathlib.Path(folder).absolute()
    manifest = checked_manifest(folder)
    if "buckets" not in manifest:
        return _opened(folder, manifest, threads, instances, folder)
    chosen = runpy.run_path(str(folder / "buckets.py"))["Buckets"]

    def opened(bucket: str) -> Network:
        own = inside(folder, bucket)
        return _opened(own, checked_manifest(own), threads, instances, folder)

    network: Callable[..., Any] = chosen(manifest, opened)
    return network


def _opened(
    folder: pathlib.Path, manifest: dict[str, Any], threads: int, instances: int, top: pathlib.Path
) -> Network:
    """The network of a folder, whose weights may lie in the folder above it."""
    file = inside(folder, manifest["module"])
    if manifest["run_time"] == "virtual machine":
        return Network(manifest, Machine(file, manifest, threads))
    shared = manifest.get("shared_weights")
    library = Library(
        file,
        file.stem,
        inside(top, shared) if shared else inside(folder, "weights.bin"),
        threads=threads,
        instances=instances,
        constants=manifest.get("constants"),
        tvm="apache-tvm" in manifest["needs"],
    )
    return Network(manifest, library)
