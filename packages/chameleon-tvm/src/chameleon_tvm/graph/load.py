"""Loads the compiled network in this folder; needs apache-tvm and nothing else."""

import ctypes
import json
import logging
import math
import os
import pathlib
import platform
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm.target import codegen

WEIGHTS = "weights.bin"
"""Name of the file of weights beside a library, where the manifest names no other."""

HUGE_PAGE = 2 << 20

CPUINFO = pathlib.Path("/proc/cpuinfo")
FLAGS = {
    "sse3": "pni",
    "lzcnt": "abm",
    "bmi": "bmi1",
    "neon": "asimd",
    "lse": "atomics",
    "rdm": "asimdrdm",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "dotprod": "asimddp",
    "complxnum": "fcma",
}
"""LLVM's features -> flags of ``CPUINFO``, where more than ``.``, ``-`` and ``_`` differ."""


def lacking_features(features: list[str]) -> list[str]:
    """Which of some features of LLVM's this machine's CPU lacks.

    The flags count where the system shows them: LLVM goes by the model number, which a virtual
    machine may change.
    """
    key = "Features" if platform.machine() in {"aarch64", "arm64"} else "flags"
    told = CPUINFO.read_text(errors="replace") if CPUINFO.exists() else ""
    found = re.search(rf"^{key}\s*:(.*)$", told, re.MULTILINE)
    if found is None:
        host = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
        return [name for name in features if not codegen.target_has_features(name, host)]
    flags = {_plain(flag) for flag in found[1].split()}
    return [name for name in features if _plain(FLAGS.get(name, name)) not in flags]


def refused_tiles() -> str:
    """Ask for AMX's tiles, for all threads of this process; why the system refuses, or nothing."""
    # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) of Linux on x86-64.
    words = map(ctypes.c_long, (158, 0x1023, 18))
    granted = ctypes.CDLL(None, use_errno=True).syscall(*words) == 0
    return "" if granted else os.strerror(ctypes.get_errno())


def check_processor(manifest: dict[str, Any]) -> None:
    """See that this process may run what a manifest describes."""
    lacking = lacking_features(manifest["cpu_features"])
    if lacking:
        raise RuntimeError(f"this CPU lacks {', '.join(lacking)}, which the network was built for")
    refused = refused_tiles() if "amx" in manifest.get("permissions", ()) else ""
    if refused:
        raise RuntimeError(f"the network needs AMX, and the system refuses arch_prctl: {refused}")


def _plain(name: str) -> str:
    return re.sub(r"[._-]", "", name)


def load(folder: str | pathlib.Path = pathlib.Path(__file__).parent) -> Callable[..., Any]:
    """The network as a function: arrays in, a new array out, or a list of several.

    Its memory is its own, so threads may run several loaded networks, but each one at a time. One
    that was compiled for several shapes is a ``Buckets``.
    """
    manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
    if "buckets" in manifest:
        return Buckets(manifest, lambda bucket: load(pathlib.Path(folder, bucket)))
    check_processor(manifest)
    module = tvm.runtime.load_module(str(pathlib.Path(folder, manifest["module"]).resolve()))
    # TVM's own default may be one thread.
    threads = int(os.environ.get("TVM_NUM_THREADS", manifest["threads"]))
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    static = module.implements_function("network_open")
    if static:
        weights = weights_of(pathlib.Path(folder, manifest.get("weights", WEIGHTS)))
        run = called(module, weights, manifest)
    else:
        run = interpreted(module, manifest)
    kinds = [wanted["dtype"] for wanted in manifest["inputs"]]

    def network(*inputs: Any) -> Any:
        check_count(inputs, manifest)
        for array, wanted in zip(inputs, manifest["inputs"], strict=True):
            if list(np.shape(array)) != wanted["shape"]:
                raise ValueError(f"{wanted['name']} must have shape {wanted['shape']}")
        pairs = zip(inputs, kinds, strict=True)
        outputs = run([np.asarray(array, kind, order="C") for array, kind in pairs])
        return outputs[0] if len(outputs) == 1 else outputs

    return network


def check_count(inputs: Sequence[Any], manifest: dict[str, Any]) -> None:
    """See that there is an array for each input."""
    if len(inputs) != len(manifest["inputs"]):
        names = ", ".join(wanted["name"] for wanted in manifest["inputs"])
        raise ValueError(f"the network takes {names}, not {len(inputs)} arrays")


Arrays = list[np.ndarray[Any, Any]]
Shapes = list[list[int]]
"""The shape of each input."""


class Placed(NamedTuple):
    """What a call of a network for several shapes becomes.

    Attributes:
        bucket: its name.
        inputs: as the bucket gets them.
        kept: what is cut off the bucket's outputs: number of the output and of its axis, and how
            much of that is kept.
    """

    bucket: str
    inputs: Arrays
    kept: list[tuple[int, int, int]]


class Buckets:
    """A network compiled for several shapes: each call goes to one of them.

    A bucket is loaded when it is called first. Inputs between the buckets are filled up at their
    ends, and outputs cut, where the network was delivered for that. What is done is told once a
    shape at level INFO of the logger ``chameleon.network``; ``plan`` says it without doing it.

    Args:
        manifest: what there is.
        opened: the network in a folder of a bucket.
    """

    def __init__(
        self, manifest: dict[str, Any], opened: Callable[[str], Callable[..., Any]]
    ) -> None:
        self._manifest = manifest
        self._opened = opened
        self._loaded: dict[str, Callable[..., Any]] = {}
        self._chosen: dict[str, dict[str, Any]] = {}
        self._pads: dict[tuple[int, int], Any] = {
            (place, axis): pad
            for one in manifest["dimensions"]
            for place, axis, pad in one["axes"]
            if pad is not None
        }

    def __call__(self, *inputs: Any) -> Any:
        """Its outputs for one array per input; ``ValueError`` where no bucket takes them."""
        shapes = self._shapes(inputs)
        bucket = self._chosen.get(str(shapes))
        if bucket is None:
            bucket = self._chosen[str(shapes)] = self._bucket(shapes)
            said = self._sentence(bucket, shapes)
            logging.getLogger("chameleon.network").info("%s: %s", self._said(shapes), said)
        name = bucket["name"]
        if name not in self._loaded:
            self._loaded[name] = self._opened(bucket["folder"])
        if bucket["inputs"] == shapes:
            return self._loaded[name](*inputs)
        found = self._loaded[name](*self._filled(inputs, bucket["inputs"]))
        outputs = found if isinstance(found, list) else [found]
        for place, axis, extent in self._kept(shapes):
            outputs[place] = outputs[place][(slice(None),) * axis + (slice(extent),)]
        # Copies, since what is cut off would stay in memory with a part of it.
        cut = [np.array(output, order="C") for output in outputs]
        return cut if isinstance(found, list) else cut[0]

    def placed(self, *inputs: Any) -> Placed:
        """Where a call with these arrays goes; ``ValueError`` where no bucket takes them."""
        shapes = self._shapes(inputs)
        bucket = self._bucket(shapes)
        if bucket["inputs"] == shapes:
            return Placed(bucket["name"], list(inputs), [])
        return Placed(bucket["name"], self._filled(inputs, bucket["inputs"]), self._kept(shapes))

    def plan(self, *inputs: Any) -> str:
        """What a call with these arrays does, as a sentence."""
        shapes = self._shapes(inputs)
        return self._sentence(self._bucket(shapes), shapes)

    def _shapes(self, inputs: Sequence[Any]) -> Shapes:
        check_count(inputs, self._manifest)
        return [list(np.shape(array)) for array in inputs]

    def _bucket(self, shapes: Shapes) -> dict[str, Any]:
        """The bucket of exactly these shapes, or the smallest one that they can be filled up to."""
        buckets = self._manifest["buckets"]
        exact = [bucket for bucket in buckets if bucket["inputs"] == shapes]
        together = all(
            len({shapes[place][axis] for place, axis, _ in one["axes"]}) == 1
            for one in self._manifest["dimensions"]
            if all(axis < len(shapes[place]) for place, axis, _ in one["axes"])
        )
        fitting = [one for one in buckets if together and self._fits(shapes, one["inputs"])]
        if exact or fitting:
            found: dict[str, Any] = min(exact or fitting, key=lambda one: _elements(one["inputs"]))
            return found
        known = "; ".join(f"{one['name']} ({self._said(one['inputs'])})" for one in buckets)
        way = (
            "of inputs between them only axes with a `pad` are filled up, all axes of a dimension "
            "alike"
            if self._pads
            else "with a `pad` beside its `buckets` in the pipeline, the network is delivered for "
            "inputs between them as well"
        )
        raise ValueError(f"no bucket takes {self._said(shapes)}; there are {known}; {way}")

    def _fits(self, shapes: Shapes, bucket: Shapes) -> bool:
        return all(
            len(shape) == len(wanted)
            and all(
                given == extent or ((place, axis) in self._pads and 0 < given < extent)
                for axis, (given, extent) in enumerate(zip(shape, wanted, strict=True))
            )
            for place, (shape, wanted) in enumerate(zip(shapes, bucket, strict=True))
        )

    def _filled(self, inputs: Sequence[Any], bucket: Shapes) -> Arrays:
        made = []
        for place, (given, shape) in enumerate(zip(inputs, bucket, strict=True)):
            array = np.asarray(given, self._manifest["inputs"][place]["dtype"])
            widths = [(0, extent - has) for extent, has in zip(shape, array.shape, strict=True)]
            pads = [(0, self._pads.get((place, axis), 0)) for axis in range(len(shape))]
            made.append(np.pad(array, widths, constant_values=pads))
        return made

    def _kept(self, shapes: Shapes) -> list[tuple[int, int, int]]:
        """What of the outputs belongs to inputs of these shapes; see ``Placed.kept``."""
        return [
            (place, axis, factor * _extent(one, shapes))
            for one in self._manifest["dimensions"]
            for place, axis, factor in one["outputs"]
        ]

    def _sentence(self, bucket: dict[str, Any], shapes: Shapes) -> str:
        padded = []
        for one in self._manifest["dimensions"]:
            asked, extent = _extent(one, shapes), _extent(one, bucket["inputs"])
            if asked != extent:
                padded.append(f"{one['name']} {asked} is padded to {extent}")
        return " and ".join(padded) or f"bucket {bucket['name']} is run as it is"

    def _said(self, shapes: Shapes) -> str:
        names = [wanted["name"] for wanted in self._manifest["inputs"]]
        return ", ".join(f"{name} {shape}" for name, shape in zip(names, shapes, strict=True))


def _extent(dimension: dict[str, Any], shapes: Shapes) -> int:
    place, axis, _ = dimension["axes"][0]
    extent: int = shapes[place][axis]
    return extent


def _elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes)


HELD: weakref.WeakValueDictionary[tuple[str, int], Any] = weakref.WeakValueDictionary()
"""Weights in use, by file: networks loaded from the same one share them."""


def weights_of(file: pathlib.Path) -> Any:
    """The bytes of a file of weights; read once as long as anybody uses them.

    On huge pages a few entries of the processor's page tables reach all of them, where they are
    tens of thousands of small pages otherwise, each used once in an inference.
    """
    told = file.stat()
    key = str(file.resolve()), told.st_mtime_ns
    weights = HELD.get(key)
    if weights is None:
        # NumPy asks for huge pages where an array has two of them.
        room = np.empty(told.st_size + HUGE_PAGE, np.uint8)
        start = -room.ctypes.data % HUGE_PAGE
        weights = HELD[key] = room[start : start + told.st_size]
        with file.open("rb") as stream:
            stream.readinto(weights.data)
    return weights


def called(
    module: Any, weights: Any, manifest: dict[str, Any], times: Sequence[Any] = ()
) -> Callable[[Arrays], Arrays]:
    """A network of fixed shapes: kernels called one after the other, on the caller's arrays.

    Args:
        module: the library.
        weights: what ``weights_of`` read.
        manifest: what describes it.
        times: an array of int64 for the nanoseconds of each kernel, where they are wanted.
    """
    count = int(weights[:8].view(np.int64)[0])
    starts = weights[8 : 8 * (count + 1)].view(np.int64)[manifest.get("constants", slice(None))]
    run = module["network_open"](tvm_ffi.from_dlpack(weights), tvm_ffi.from_dlpack(starts))
    made = [(wanted["shape"], wanted["dtype"]) for wanted in manifest["outputs"]]

    def network(inputs: Arrays) -> Arrays:
        outputs: Arrays = [np.empty(shape, dtype) for shape, dtype in made]
        # NumPy lends no tensor of an array that must not be written.
        lent = [array if array.flags.writeable else array.copy() for array in inputs]
        run(*lent, *outputs, *times)
        return outputs

    return network


def interpreted(module: Any, manifest: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """A network that TVM's virtual machine runs."""
    from tvm import relax  # noqa: PLC0415 - takes longer to import than all the rest

    machine: Any = relax.VirtualMachine(module, tvm.cpu())
    # Filled anew by each call, which memory fresh from the system would slow down.
    held = [tvm.runtime.empty(wanted["shape"], wanted["dtype"]) for wanted in manifest["inputs"]]

    def network(inputs: Arrays) -> Arrays:
        for tensor, array in zip(held, inputs, strict=True):
            tensor.copyfrom(array)
        found = machine["main"](*held)
        return [one.numpy() for one in ([found] if hasattr(found, "numpy") else found)]

    return network
