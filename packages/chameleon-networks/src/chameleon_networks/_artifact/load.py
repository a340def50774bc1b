"""Loads the compiled network in this folder.

The list `needs` in manifest.json names the Python packages that must be installed.

`load()` returns a function that any number of threads may call.
"""

import ctypes
import functools
import hashlib
import json
import logging
import operator
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np

Arrays = list[np.ndarray[Any, Any]]
Manifest = dict[str, Any]
"""The manifest of a folder, or a part of a manifest, as JSON values."""

LIBRARY, VIRTUAL_MACHINE = "library", "virtual machine"
"""The two ways to run a network: functions of its own library, or TVM's virtual machine."""


class Network:
    """A compiled network as a function of one array per input.

    Any number of threads may call the network. A call waits while all instances are in use. An
    input may be anything that NumPy converts to an array: NumPy arrays, torch tensors, or objects
    with DLPack or the array interface. An input with the right dtype and layout is not copied.
    After a fork, the child process may call the network too.

    Args:
        manifest: The manifest of the network's folder.
        engine: The object that runs the network: a ``Library`` or a ``Machine``.

    Attributes:
        again: A function without arguments that loads the network again. Copies and other processes
            call it, because they cannot share the network.
        threads: Number of threads that compute one inference.
        vectors: The reason why kernels with vectors run instead of those that the network was tuned
            with. Empty if the latter run.
    """

    def __init__(self, manifest: Manifest, engine: Any) -> None:
        self.engine = engine
        self.vectors = ""
        self.again: Callable[[], Any] | None = None
        self.threads = engine.threads
        self._wanted = [
            (t["name"], tuple(t["shape"]), _dtype(t["dtype"])) for t in manifest["inputs"]
        ]
        self._kinds = [(t["shape"], _dtype(t["dtype"])) for t in manifest["outputs"]]

    def __call__(self, *inputs: Any) -> Any:
        """Compute the outputs: one array, or a list of arrays if the network has several outputs.

        Raises:
            ValueError: An input is missing, or its shape or dtype does not fit.
        """
        outputs = self.outputs(self.arrays(inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def arrays(self, inputs: Any) -> Arrays:
        """Convert a caller's inputs to arrays with the dtypes and layouts that kernels read."""
        if len(inputs) != len(self._wanted):
            names = ", ".join(name for name, _, _ in self._wanted)
            raise ValueError(f"the network takes {names}, not {len(inputs)} arrays")
        arrays = []
        for value, (name, shape, dtype) in zip(inputs, self._wanted, strict=True):
            dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
            try:
                array = np.asarray(np.from_dlpack(value) if dlpack else value)
            except (BufferError, RuntimeError, TypeError) as error:
                raise ValueError(f"{name} must be an array of {dtype}: {error}") from error
            if array.shape != shape:
                raise ValueError(f"{name} must have shape {list(shape)}, not {list(array.shape)}")
            if array.dtype != dtype and not _becomes(array.dtype, dtype):
                raise ValueError(f"{name} must hold {dtype}, not {array.dtype}")
            array = np.asarray(array, dtype, order="C")
            arrays.append(array if array.flags.aligned else array.copy())
        return arrays

    def outputs(self, arrays: Arrays, times: Any = None) -> Arrays:
        """Compute the outputs for arrays that the method ``arrays`` returned."""
        outputs: Arrays = self.engine.run(arrays, self._kinds, times)
        return outputs

    def __reduce__(self) -> Any:
        return self.again, ()

    def close(self) -> None:
        """Free the network: stop its threads and release its memory after running calls have ended.

        A second call does nothing.
        """
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _becomes(own: Any, wanted: Any) -> bool:
    """Whether inputs of one dtype may be converted to another; floats never become integers."""
    kinds = ["f" if dtype.name == "bfloat16" else dtype.kind for dtype in (own, wanted)]
    return kinds[0] in "biu" or kinds == ["f", "f"]


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - a type that NumPy lacks

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


TENSOR = {"shape": [int], "dtype": str}
NETWORK = {
    "module": str,
    "run_time": str,
    "threads": int,
    "needs": [str],
    "cpu_flags": {str: str},
    "inputs": [{"name": str, **TENSOR}],
    "outputs": [TENSOR],
}
BUCKETS = {
    "inputs": [{"name": str, "dtype": str}],
    "dimensions": [{"name": str, "axes": [list], "outputs": [list]}],
    "buckets": [{"name": str, "folder": str, "inputs": [[int]], "outputs": [[int]]}],
}
ROW = 3
"""Number of values in a row of a dimension: a tensor's number, an axis's number, and the padding or
the factor."""
OPTIONAL = {"shared_weights": str, "constants": [int], "permissions": [str], "vectors": str}
DTYPES = {"bool", "bfloat16", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def has_form(value: Any, form: Any) -> bool:
    """Whether a JSON value has a form: a type, a list of one form, or a mapping to forms."""
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(item, form[0]) for item in value)
    if not isinstance(form, dict):
        return type(value) is form
    if not isinstance(value, dict):
        return False
    keys = value if str in form else form
    return all(key in value and has_form(value[key], form.get(key, form.get(str))) for key in keys)


def checked_manifest(folder: pathlib.Path) -> Manifest:
    """Read the manifest of a folder, and check that the folder's files are as the manifest says."""
    file = folder / "manifest.json"
    try:
        manifest: Any = json.loads(file.read_bytes())
    except OSError as error:
        inner = folder / "network"
        where = f"; the network is in {inner}" if (inner / file.name).exists() else ""
        raise RuntimeError(f"{file} cannot be read: {error.strerror}{where}") from error
    except (ValueError, RecursionError) as error:
        raise RuntimeError(f"{file} is damaged; deliver the network again") from error
    if not has_form(manifest, {}):
        raise RuntimeError(f"{file} is damaged; deliver the network again")
    digest = manifest.pop("digest", None)
    if digest is None:
        raise RuntimeError(f"{file} is of an earlier version; deliver the network again")
    if digest != digest_of(manifest):
        raise RuntimeError(f"{file} was changed since it was delivered; deliver the network again")
    if not has_form(manifest, {"files": {str: {"bytes": int}}}):
        raise RuntimeError(f"{file} names no files; deliver the network again")
    for name, known in manifest["files"].items():
        _check_file(inside(folder, name), known)
    checked: Manifest = manifest
    return checked


def check_files(folder: pathlib.Path) -> None:
    """Check the files of a delivered network, also those of its buckets."""
    manifest = checked_manifest(folder)
    inner = [bucket["folder"] for bucket in manifest.get("buckets", ())]
    for name in [*inner, *filter(None, [manifest.get("vectors")])]:
        check_files(inside(folder, name))


def check_cpu(folder: pathlib.Path) -> None:
    """Raise an ``ImportError`` if this CPU lacks features that a delivered network needs."""
    manifest = checked_manifest(folder)
    inner = [bucket["folder"] for bucket in manifest.get("buckets", ())]
    others = inner[:1] or [name for name in [manifest.get("vectors")] if name]
    if others:
        check_cpu(inside(folder, others[0]))
    elif reason := refusal({**manifest, "permissions": []}):
        raise ImportError(reason)


def digest_of(manifest: Manifest) -> str:
    """The SHA-256 digest of a manifest's content."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_file(file: pathlib.Path, known: Manifest) -> None:
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
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{file} cannot be read: {error}") from error
    if digest != known["sha256"]:
        raise RuntimeError(f"{file} was changed since it was delivered; deliver the network again")


def inside(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The path of a file that a manifest names, checked to lie inside the network's folder."""
    parts = pathlib.PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise RuntimeError(f"{folder} names {name!r}, which is no file of its own")
    return folder.joinpath(*parts)


def _code(folder: pathlib.Path, manifest: Manifest, name: str) -> pathlib.Path:
    """The path of a code file to run, whose digest ``checked_manifest`` has checked."""
    for known in (name, name.removeprefix("_")):  # earlier versions wrote names without "_"
        if "sha256" in manifest["files"].get(known, ()):
            return inside(folder, known)
    raise RuntimeError(f"the manifest of {folder} has no digest of {name}")


def load(
    folder: str | pathlib.Path = pathlib.Path(__file__).parent,
    *,
    threads: int = 0,
    instances: int = 1,
) -> Callable[..., Any]:
    """Load the network of a folder as a function of arrays, a ``Network``.

    If the network was compiled for several shapes, the function is a ``Buckets``.

    Args:
        folder: The folder that ``chameleon run`` or ``chameleon compile`` delivered.
        threads: Number of threads that compute one inference. 0 takes the value of the environment
            variable ``NETWORK_NUM_THREADS`` (``KERNEL_NUM_THREADS`` for a single operator), or else
            of ``OMP_NUM_THREADS``. If neither is set, 0 takes the number that the network was
            measured with, but not more than the cores that this process may use.
        instances: Number of inferences that may run at the same time. All inferences share the
            weights and the threads. Each has its own memory for intermediate results.

    Raises:
        RuntimeError: A file is missing, cut off or changed, or this CPU lacks features that the
            network needs.
        ValueError: The number of threads or instances is out of range.
    """
    folder = pathlib.Path(folder).absolute()
    threads, instances = operator.index(threads), operator.index(instances)
    if not (0 <= threads < 1 << 31 and 0 < instances < 1 << 31):
        raise ValueError("a network has 1 or more threads, or 0 for its own choice, and instances")
    manifest = checked_manifest(folder)
    importable = __name__ != _ALONE and getattr(sys.modules.get(__name__), "load", None) is _load
    again = functools.partial(
        _load if importable else _Load(), str(folder), threads=threads, instances=instances
    )
    if "buckets" not in manifest:
        single = _opened(folder, manifest, threads, instances, folder)
        single.again = again
        return single
    _check_form(folder, manifest, BUCKETS)
    if not all(_has_axes(bucket, manifest["dimensions"]) for bucket in manifest["buckets"]):
        raise RuntimeError(f"the manifest of {folder} describes no network; deliver it again")
    chosen = runpy.run_path(str(_code(folder, manifest, "_buckets.py")))["Buckets"]

    def opened(bucket: str) -> Network:
        own = inside(folder, bucket)
        return _opened(own, checked_manifest(own), threads, instances, folder)

    network: Callable[..., Any] = chosen(manifest, opened)
    vars(network)["again"] = again
    return network


class _Load:
    """The function ``load`` for other processes, if they cannot import this module by its name."""

    def __call__(self, *args: Any, **options: Any) -> Callable[..., Any]:
        return _load(*args, **options)

    def __reduce__(self) -> Any:
        return operator.itemgetter("load"), (_Names(),)


class _Names:
    """The names that this file defines; other processes run the file to get them."""

    def __reduce__(self) -> Any:
        return runpy.run_path, (_FILE,)


_FILE = str(pathlib.Path(__file__).absolute())


def _opened(
    folder: pathlib.Path, manifest: Manifest, threads: int, instances: int, top: pathlib.Path
) -> Network:
    """Load the network of a folder, whose weights may lie in the folder ``top`` above it."""
    _check_form(folder, manifest, NETWORK)
    with_vectors = manifest.get("vectors")
    reason = refusal(manifest) if with_vectors or manifest["run_time"] == VIRTUAL_MACHINE else ""
    if reason and with_vectors:
        other = inside(folder, with_vectors)
        network = _opened(other, checked_manifest(other), threads, instances, top)
        network.vectors = reason
        logger = logging.getLogger("chameleon.network")
        logger.warning("%s runs its kernels with vectors, because %s", folder, reason)
        return network
    if reason:
        raise RuntimeError(reason)
    file = _code(folder, manifest, manifest["module"])
    if manifest["run_time"] == VIRTUAL_MACHINE:
        machine = runpy.run_path(str(_code(folder, manifest, "_machine.py")))["Machine"]
        return Network(manifest, machine(file, manifest, threads))
    shared = manifest.get("shared_weights")
    weights = inside(top, shared) if shared else inside(folder, "weights.bin")
    library = runpy.run_path(str(_code(folder, manifest, "_library.py")))["Library"]
    return Network(manifest, library(file, weights, manifest, threads, instances))


CPUINFO = pathlib.Path("/proc/cpuinfo")


def refusal(manifest: Manifest) -> str:
    """Why kernels cannot run here: a feature of the CPU, or a permission; empty if they can."""
    flags: set[str] = set()
    if CPUINFO.exists():
        with CPUINFO.open(errors="replace") as lines:
            first = next(filter(None, map(_FLAGS.match, lines)), None)
        flags = set(re.sub(r"[._-]", "", first[1]).split()) if first else flags
    lacking = [name for name, flag in manifest["cpu_flags"].items() if flags and flag not in flags]
    if lacking:
        return f"this CPU lacks {', '.join(lacking)}, which the network was built for"
    if "amx" in manifest.get("permissions", ()):
        # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) of Linux on x86-64.
        words = map(ctypes.c_long, (158, 0x1023, 18))
        if ctypes.CDLL(None, use_errno=True).syscall(*words) != 0:
            why = os.strerror(ctypes.get_errno())
            return f"the network needs AMX, and the system refuses arch_prctl: {why}"
    return ""


_FLAGS = re.compile(r"(?:flags|Features)\s*:(.*)")


def _has_axes(bucket: Manifest, dimensions: list[Manifest]) -> bool:
    """Whether a bucket's tensors have all axes that the dimensions of the manifest name."""
    return all(
        has_form(row[:2], [int])
        and len(row) == ROW
        and 0 <= row[0] < len(bucket[key])
        and 0 <= row[1] < len(bucket[key][row[0]])
        for dimension in dimensions
        for key, rows in (("inputs", dimension["axes"]), ("outputs", dimension["outputs"]))
        for row in rows
    )


def _check_form(folder: pathlib.Path, manifest: Manifest, form: Manifest) -> None:
    """Check that a manifest has a form, and that its tensors are possible."""
    optional = {key: kind for key, kind in OPTIONAL.items() if key in manifest}
    if not has_form(manifest, {**form, **optional}) or not all(map(_possible, _tensors(manifest))):
        raise RuntimeError(f"the manifest of {folder} describes no network; deliver it again")


def _tensors(manifest: Manifest) -> list[Manifest]:
    return [*manifest["inputs"], *manifest.get("outputs", [])]


def _possible(tensor: Manifest) -> bool:
    """Whether NumPy has arrays of a tensor's dtype and shape."""
    shape = tensor.get("shape", [])
    return tensor["dtype"] in DTYPES and all(0 <= extent < 1 << 31 for extent in shape)


_load = load
_ALONE = "load"
"""The name of this module if the folder itself, and not the folder above it, is on ``sys.path``."""

if __name__ == _ALONE:
    del load

    def __getattr__(name: str) -> Any:
        """The function ``load``, after which another folder's ``load.py`` may be imported."""
        if name != "load":
            raise AttributeError(f"{_FILE} defines no {name}")
        if getattr(sys.modules.get(_ALONE), "__file__", None) == __file__:
            del sys.modules[_ALONE]
        return _load
