"""Loads the compiled network in this folder.

The list `needs` in manifest.json names the Python packages that must be installed.

`load()` returns a function that any number of threads may call.
"""

import collections
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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = list[Array]
Manifest = dict[str, Any]
"""The manifest of a folder, or a part of a manifest, as JSON values."""

LIBRARY, VIRTUAL_MACHINE = "library", "virtual machine"
"""The two ways to run a network: functions of its own library, or TVM's virtual machine."""


class TensorSpec(NamedTuple):
    """The description of an input or output of a network.

    Attributes:
        name: The name by which callers give the input. It is a valid identifier.
        shape: The extent of each axis. An axis that has several extents has its name instead. If
            each call finds out the extent, there is a text such as ``0..100``.
        dtype: The dtype of the elements.
        source: The name in the model, from which ``name`` is made.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: Any
    source: str

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"{self.name} ({self.dtype} [{shape}])"


class Signature:
    """Converts the arguments of a call to arrays, and arrays to what the network returns.

    Args:
        manifest: The manifest of the network's folder.

    Attributes:
        inputs: A description of each input.
        state: A description of each buffer that a call changes.
        outputs: A description of each output.
        counts: Pairs of an output and an axis for each count that a call also computes. It is the
            extent of these axes.
        packed: A function that makes the result of a call of a list of all outputs.
    """

    def __init__(self, manifest: Manifest) -> None:
        taken, self.outputs = (
            tuple(
                TensorSpec(name, tuple(tensor["shape"]), _dtype(tensor["dtype"]), source)
                for number, tensor in enumerate(manifest[key])
                for name in [tensor.get("name", f"output{number}")]
                for source in [tensor.get("source", name)]
            )
            for key in ("inputs", "outputs")
        )
        first = len(taken) - len(manifest.get("state", ()))
        self.inputs, self.state = taken[:first], taken[first:]
        self.kinds = [(spec.shape, spec.dtype) for spec in self.outputs]
        self.counts = manifest.get("counts", ())
        self.kinds += [((1,), np.dtype("int64"))] * len(self.counts)
        self.outputs = self._with_open_axes()
        self._names = tuple(spec.name for spec in self.inputs)
        self._places = {spec.source: place for place, spec in enumerate(self.inputs)}
        self._places |= {spec.name: place for place, spec in enumerate(self.inputs)}
        # Folders of earlier versions return a list of several outputs.
        earlier = 0 if len(self.outputs) == 1 else {"type": "list", "parts": self._numbers}
        self.packed = self._packer(manifest.get("returns", earlier))

    def _with_open_axes(self) -> tuple[TensorSpec, ...]:
        """The outputs, with a text for each axis whose extent a call finds out."""
        shapes = [list(spec.shape) for spec in self.outputs]
        for number, axis in [pair for pairs in self.counts for pair in pairs]:
            shapes[number][axis] = f"0..{shapes[number][axis]}"
        pairs = zip(self.outputs, shapes, strict=True)
        return tuple(spec._replace(shape=tuple(shape)) for spec, shape in pairs)

    def cut(self, arrays: Arrays) -> Arrays:
        """The outputs of a call, cut to the counts that follow them."""
        outputs, counts = arrays[: len(self.outputs)], arrays[len(self.outputs) :]
        for pairs, count in zip(self.counts, counts, strict=True):
            for number, axis in pairs:
                part = (slice(None),) * axis + (slice(int(count[0])),)
                outputs[number] = np.ascontiguousarray(outputs[number][part])
        return outputs

    @property
    def _numbers(self) -> list[int]:
        return list(range(len(self.outputs)))

    def ordered(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Sort the inputs of a call, which come by position or by name, as arguments in Python do.

        Raises:
            ValueError: An input is missing, unknown, or given twice.
        """
        rest = self._names[len(inputs) :]
        if len(inputs) + len(named) == len(self._names) and all(map(named.__contains__, rest)):
            return [*inputs, *map(named.__getitem__, rest)]
        if len(inputs) > len(self.inputs):
            raise self._error(f"{len(inputs)} arrays are too many")
        given = dict(enumerate(inputs))
        for name, value in named.items():
            place = self._places.get(name)
            if place is None:
                raise self._error(f"there is no input {name!r}")
            if place in given:
                raise self._error(f"input {self.inputs[place].name} is given twice")
            given[place] = value
        missing = [spec.name for place, spec in enumerate(self.inputs) if place not in given]
        if missing:
            raise self._error(f"input {' and '.join(missing)} is missing")
        return [given[place] for place in range(len(self.inputs))]

    def _error(self, problem: str) -> ValueError:
        takes = ", ".join(map(str, self.inputs)) or "no inputs"
        return ValueError(f"{problem}; the network takes {takes}")

    def array(self, number: int, value: Any) -> np.ndarray[Any, Any]:
        """Convert an input to an array with the dtype and layout that kernels read.

        Raises:
            ValueError: The input has another shape, or the dtype would change its numbers.
        """
        name, shape, dtype, _ = self.inputs[number]
        array = value if type(value) is np.ndarray else _array(name, value, dtype)
        # A bucket checks the shapes of inputs with open axes.
        if array.shape != shape and str not in map(type, shape):
            problem = f"{name} must have shape {list(shape)}, not {list(array.shape)}"
            raise ValueError(problem + self._fitting(array))
        if array.dtype != dtype:
            converted = _converted(array, dtype, rounds=isinstance(value, _WITHOUT_DTYPE))
            if converted is None:
                problem = f"{name} must hold {dtype}, not {array.dtype}"
                raise ValueError(problem + (self._fitting(array) or _way_out(array.dtype, dtype)))
            array = converted
        array = np.asarray(array, dtype, order="C")
        return array if array.flags.aligned else array.copy()

    def buffers(self, state: Any) -> Arrays:
        """The arrays of a caller's state, which kernels read and write in place.

        Raises:
            ValueError: There is no state, or an array has another name, shape, dtype or layout.
        """
        given = state if isinstance(state, Mapping) else {}
        names = [spec.source for spec in self.state]
        if given.keys() != set(names):
            has = "changes its state" if state is None else f"has the state {', '.join(names)}"
            raise ValueError(
                f"this network {has}; pass state=..., which network.new_state() makes and calls "
                "change"
            )
        arrays: Arrays = [given[name] for name in names]
        for (_, shape, dtype, source), array in zip(self.state, arrays, strict=True):
            if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (shape, dtype):
                raise ValueError(
                    f"{source!r} of state must be an array of NumPy, {dtype} {list(shape)}, as "
                    f"network.new_state() makes it, not {_described(array)}"
                )
            if not array.flags.carray:
                raise ValueError(f"{source!r} of state must be contiguous, aligned and writable")
        return arrays

    def _fitting(self, array: np.ndarray[Any, Any]) -> str:
        """A hint if an array fits another input than the one that it was given for."""
        fitting = [
            spec.name
            for spec in self.inputs
            if (spec.shape, spec.dtype) == (array.shape, array.dtype)
        ]
        hint = f"; the array fits {' and '.join(fitting)}, so check the order of the inputs"
        return hint if fitting else ""

    def _packer(self, tree: Any) -> Callable[[Arrays], Any]:
        """A function that makes a part of the result, which an entry of the manifest describes."""
        if not isinstance(tree, dict):
            return operator.itemgetter(self._numbers[tree])
        name, keys, numbers = tree["type"], tree.get("keys"), tree["parts"]
        if keys is not None and len(keys) != len(numbers):
            raise ValueError("there is not one key for each part")
        if keys is None:
            make: Callable[[Any], Any] = {"tuple": tuple, "list": list}[name]
        elif name == "dict":
            make = functools.partial(_mapping, keys)
        else:
            make = _fields(name, keys)._make
        if numbers == self._numbers:
            return make
        parts = [self._packer(part) for part in numbers]
        return lambda outputs: make([part(outputs) for part in parts])


def flat(outputs: Any) -> Arrays:
    """All arrays in the result of a call, in the order of ``Network.outputs``."""
    if isinstance(outputs, np.ndarray):
        return [outputs]
    parts = outputs.values() if isinstance(outputs, dict) else outputs
    return [array for part in parts for array in flat(part)]


def _mapping(keys: Sequence[Any], values: Any) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


_make_class: Any = collections.namedtuple  # noqa: PYI024 - the fields are known late


def _fields(name: str, keys: Sequence[str]) -> Any:
    """A class of named tuples, whose instances other processes can read without this file."""
    made = _NamedTuple(name, keys)

    def reduced(values: Any) -> Any:
        return operator.methodcaller("_make", tuple(values)), (made,)

    base = _make_class(name, keys)
    return type(name, (base,), {"__slots__": (), "__reduce__": reduced})


class _NamedTuple:
    """A class of named tuples for other processes, which get the class itself."""

    def __init__(self, name: str, keys: Sequence[str]) -> None:
        self._facts = name, tuple(keys)

    def __reduce__(self) -> Any:
        return _make_class, self._facts


def _described(value: Any) -> str:
    array = isinstance(value, np.ndarray)
    return f"{value.dtype} {list(value.shape)}" if array else type(value).__name__


class Network:
    """A compiled network as a function of its inputs, by position or by name.

    Any number of threads may call the network. A call waits while all instances are in use. An
    input may be anything that NumPy converts to an array: NumPy arrays, torch tensors, or objects
    with DLPack or the array interface. An input with the right dtype and layout is not copied.
    After a fork, the child process may call the network too.

    Some networks change buffers that later calls read, such as a cache. They take the keyword
    ``state``, and each call changes the arrays of that state. Calls with different states may run
    at the same time; calls with the same state must not.

    Args:
        signature: The inputs and outputs of the network.
        engine: The object that runs the network: a ``Library`` or a ``Machine``.
        initial: The path of a file with arrays that a new state begins with. The others are zeros.

    Attributes:
        inputs: A ``TensorSpec`` for each input.
        state: A ``TensorSpec`` for each array of a state; empty for most networks.
        outputs: A ``TensorSpec`` for each output.
        again: A function without arguments that loads the network again. Copies and other processes
            call it, because they cannot share the network.
        threads: Number of threads that compute one inference.
        vectors: The reason why kernels with vectors run instead of those that the network was tuned
            with. Empty if the latter run.
        level: The level of CPUs whose kernels run, such as ``x86-64-v3``. Empty if it is that of
            the CPU that the network was tuned for.
    """

    def __init__(
        self, signature: Signature, engine: Any, initial: pathlib.Path | None = None
    ) -> None:
        self.engine = engine
        self._initial = initial
        self.vectors = self.level = ""
        self.again: Callable[[], Any] | None = None
        self.threads = engine.threads
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self.state = signature.state
        self._signature, self._array, self._packed = signature, signature.array, signature.packed
        self._count = len(signature.inputs)

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        """Compute the outputs, which the network returns as its model does.

        That is an array, a named tuple, or a mapping. Several outputs without a structure are a
        named tuple.

        Raises:
            ValueError: An input is missing or unknown, or its shape or dtype does not fit. Or the
                network needs a state, and ``state`` is missing or does not fit.
        """
        state = named.pop("state", None) if self.state else None
        if named:
            inputs = tuple(self._signature.ordered(inputs, named))
        return self._packed(self.run(self.arrays(inputs, state)))

    def new_state(self) -> dict[str, Array]:
        """Make the arrays of a new state, with the numbers that the model's buffers begin with.

        The names are those of the buffers in the model. The arrays are yours: read, change, copy or
        save them between calls.

        Raises:
            ValueError: The network has no state.
        """
        if not self.state:
            raise ValueError("this network has no state: each call depends on its inputs alone")
        state: dict[str, Array] = {}
        for _, shape, dtype, source in self.state:
            state[source] = np.zeros(tuple(map(int, shape)), dtype)
        if self._initial is not None:
            with np.load(self._initial) as stored:
                for number, spec in enumerate(self.state):
                    if str(number) in stored:
                        state[spec.source][...] = stored[str(number)]
        return state

    def arrays(self, inputs: Sequence[Any], state: Any = None) -> Arrays:
        """Convert a caller's inputs to arrays with the dtypes and layouts that kernels read."""
        if len(inputs) != self._count:
            self._signature.ordered(inputs, {})  # says what is wrong
        arrays = list(map(self._array, range(self._count), inputs))
        if not self.state:
            return arrays
        buffers = self._signature.buffers(state)
        changed = set(map(id, buffers))
        own = [x.copy() if not changed.isdisjoint((id(x), id(x.base))) else x for x in arrays]
        return [*own, *buffers]

    def run(self, arrays: Arrays, times: Any = None, extent: int = 0) -> Arrays:
        """Compute the list of outputs for arrays that the method ``arrays`` returned.

        With ``extent``, the network computes so many elements of its open axes alone.
        """
        more = [extent] if extent else []
        outputs: Arrays = self.engine.run(arrays, self._signature.kinds, times, *more)
        return self._signature.cut(outputs) if self._signature.counts else outputs

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


_WITHOUT_DTYPE = (list, tuple, int, float)
"""Types whose numbers have no dtype, so that fractions are rounded to that of the network."""


def _array(name: str, value: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """An input as an array of NumPy."""
    dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        return np.asarray(np.from_dlpack(value) if dlpack else value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ValueError(f"{name} must be an array of {dtype}: {error}") from error


def _kind(dtype: Any) -> str:
    return "f" if dtype.name == "bfloat16" else str(dtype.kind)


def _converted(array: np.ndarray[Any, Any], dtype: Any, *, rounds: bool) -> Any:
    """The array in another dtype; None if a number would change, or fractions become integers."""
    own, wanted = _kind(array.dtype), _kind(dtype)
    if own not in "biu" and (own, wanted) != ("f", "f"):
        return None
    # NumPy calls a cast from int64 to float64 safe, though it rounds numbers above 2^53.
    if (rounds and own == "f") or (own == wanted and np.can_cast(array.dtype, dtype)):
        return array.astype(dtype)
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        same = (converted.astype(array.dtype) == array) & ((converted < 0) == (array < 0))
        return converted if (same | (array != array)).all() else None  # noqa: PLR0124 - NaN


def _way_out(own: Any, wanted: Any) -> str:
    """A hint for an array that NumPy can convert, though its numbers may change."""
    convertible = _kind(own) in "biuf"
    hint = f"; if its numbers may change, convert it with .astype({str(wanted)!r})"
    return hint if convertible else ""


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
OPTIONAL = {
    "shared_weights": str,
    "constants": [int],
    "permissions": [str],
    "state": [str],
    "vectors": str,
    "levels": [{"name": str}],
    "outputs": [{"dtype": str}],
    "counts": [[[int]]],
}
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
    for name in inner_folders(manifest):
        check_files(inside(folder, name))


def inner_folders(manifest: Manifest) -> list[str]:
    """The folders of buckets, or of further libraries, that lie in a network's folder."""
    if "buckets" in manifest:
        return [bucket["folder"] for bucket in manifest["buckets"]]
    levels = [level["name"] for level in manifest.get("levels", ())]
    return [*filter(None, [manifest.get("vectors")]), *levels[1:]]


def check_cpu(folder: pathlib.Path) -> None:
    """Raise an ``ImportError`` if this CPU lacks features that a delivered network needs."""
    manifest = checked_manifest(folder)
    others = inner_folders(manifest)
    if manifest.get("levels") and "buckets" not in manifest:
        try:
            _chosen_code(folder, manifest)
        except RuntimeError as error:
            raise ImportError(error) from error
    elif others:  # of buckets, the largest one has kernels for all CPUs
        check_cpu(inside(folder, others[-1]))
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
    """Load the network of a folder as a function of its inputs, a ``Network``.

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
        raise RuntimeError(_NO_NETWORK.format(folder))
    folders = [inside(folder, bucket["folder"]) for bucket in manifest["buckets"]]
    level = ""
    if folders and manifest.get("levels"):
        largest = checked_manifest(folders[-1])
        _check_form(folders[-1], largest, NETWORK)
        level, _ = _chosen_code(folders[-1], largest)
        level = "" if level == largest.get("vectors") else level
    # Larger buckets, which also have kernels for CPUs without tiles, take the others' calls.
    others = [bucket for bucket in manifest["buckets"] if not bucket.get("needs_tiles")]
    if others and others != manifest["buckets"] and refusal(checked_manifest(folders[0])):
        manifest = {**manifest, "buckets": others}
    chosen = runpy.run_path(str(_code(folder, manifest, "_buckets.py")))["Buckets"]

    def opened(bucket: str) -> Network:
        own = inside(folder, bucket)
        return _opened(own, checked_manifest(own), threads, instances, folder)

    # Folders of earlier versions describe no outputs, and their code takes no signature.
    signature = [_signature(folder, manifest)] if "outputs" in manifest else []
    network: Callable[..., Any] = chosen(manifest, opened, *signature)
    vars(network).update(again=again, level=level)
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
_NO_NETWORK = "the manifest of {} describes no network; deliver it again"


def _signature(folder: pathlib.Path, manifest: Manifest) -> Signature:
    try:
        return Signature(manifest)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise RuntimeError(_NO_NETWORK.format(folder)) from error


def _opened(
    folder: pathlib.Path, manifest: Manifest, threads: int, instances: int, top: pathlib.Path
) -> Network:
    """Load the network of a folder, whose weights may lie in the folder ``top`` above it."""
    _check_form(folder, manifest, NETWORK)
    signature = _signature(folder, manifest)
    initial = inside(folder, STATE) if STATE in manifest["files"] else None
    name, reason = _chosen_code(folder, manifest)
    if name:
        other = inside(folder, name)
        inner = _opened(other, checked_manifest(other), threads, instances, top)
        network = Network(signature, inner.engine, initial)
        has_vectors = name == manifest.get("vectors")
        network.vectors, network.level = (reason, "") if has_vectors else ("", name)
        kind = "with" if has_vectors else "for"
        logger = logging.getLogger("chameleon.network")
        logger.warning("%s runs its kernels %s %s, because %s", folder, kind, name, reason)
        if report := getattr(inner.engine, "report", ""):  # folders of earlier versions have none
            logger.warning("%s: %s", folder, report)
        return network
    file = _code(folder, manifest, manifest["module"])
    if manifest["run_time"] == VIRTUAL_MACHINE:
        machine = runpy.run_path(str(_code(folder, manifest, "_machine.py")))["Machine"]
        return Network(signature, machine(file, manifest, threads), initial)
    shared = manifest.get("shared_weights")
    weights = inside(top, shared) if shared else inside(folder, "weights.bin")
    library = runpy.run_path(str(_code(folder, manifest, "_library.py")))["Library"]
    engine = library(file, weights, manifest, threads, instances)
    return Network(signature, engine, initial)


def _chosen_code(folder: pathlib.Path, manifest: Manifest) -> tuple[str, str]:
    """The inner folder whose library runs here, with the reason; "" for the network's own.

    Raises:
        RuntimeError: This machine can run no library of the folder.
    """
    vectors = manifest.get("vectors", "")
    if not manifest.get("levels"):
        has_others = vectors or manifest["run_time"] == VIRTUAL_MACHINE
        reason = refusal(manifest) if has_others else ""
        if reason and not vectors:
            raise RuntimeError(reason)
        return (vectors, reason) if reason else ("", "")

    own = manifest["levels"][0]["name"]

    def refused(name: str) -> str:
        inner, about = folder, manifest
        if name != own:
            inner = inside(folder, name)
            about = checked_manifest(inner)
            _check_form(inner, about, NETWORK)
        ask = runpy.run_path(str(_code(inner, about, "_library.py")))["refusal"]
        return str(ask(_code(inner, about, about["module"])))

    names = [own, *inner_folders(manifest)]
    choose = runpy.run_path(str(_code(folder, manifest, "_levels.py")))["chosen_level"]
    name, reason = choose(names, refused)
    return ("", "") if name == own else (name, reason)


STATE = "state.npz"
"""The name of the file with arrays that a new state begins with, by their numbers."""

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
        and len(row) >= ROW
        and all(has_form(step, [int]) and len(step) > 1 and step[1] > 0 for step in row[ROW:])
        and 0 <= row[0] < len(bucket[key])
        and 0 <= row[1] < len(bucket[key][row[0]])
        for dimension in dimensions
        for key, rows in (("inputs", dimension["axes"]), ("outputs", dimension["outputs"]))
        for row in rows
    )


def _check_form(folder: pathlib.Path, manifest: Manifest, form: Manifest) -> None:
    """Check that a manifest has a form, and that its tensors are possible."""
    optional = {key: kind for key, kind in OPTIONAL.items() if key in manifest}
    if not has_form(manifest, {**optional, **form}) or not all(map(_possible, _tensors(manifest))):
        raise RuntimeError(_NO_NETWORK.format(folder))
    if len(manifest.get("state", ())) > len(manifest["inputs"]):
        raise RuntimeError(_NO_NETWORK.format(folder))


def _tensors(manifest: Manifest) -> list[Manifest]:
    return [*manifest["inputs"], *manifest.get("outputs", [])]


def _possible(tensor: Manifest) -> bool:
    """Whether NumPy has arrays of a tensor's dtype and shape."""
    shape, texts = tensor.get("shape", []), [tensor.get(key, "") for key in ("name", "source")]
    return (
        tensor["dtype"] in DTYPES
        and all(isinstance(text, str) for text in texts)
        and isinstance(shape, list)
        and all(
            isinstance(extent, str) or (type(extent) is int and 0 <= extent < 1 << 31)
            for extent in shape
        )
    )


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
