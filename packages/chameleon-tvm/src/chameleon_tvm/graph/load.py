"""Loads the compiled network in this folder; needs apache-tvm and nothing else."""

import ctypes
import json
import os
import pathlib
import platform
import re
import runpy
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

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
    that was compiled for several shapes is a ``Buckets`` of ``buckets.py``.
    """
    manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
    if "buckets" in manifest:
        chosen = runpy.run_path(str(pathlib.Path(__file__).with_name("buckets.py")))["Buckets"]
        network: Callable[..., Any] = chosen(
            manifest, lambda bucket: load(pathlib.Path(folder, bucket))
        )
        return network
    check_processor(manifest)
    module = tvm.runtime.load_module(str(pathlib.Path(folder, manifest["module"]).resolve()))
    # TVM's own default may be one thread.
    threads = int(os.environ.get("TVM_NUM_THREADS", manifest["threads"]))
    BOUND.cores = None
    released(tvm.get_global_func("runtime.config_threadpool"))(1, threads)
    static = module.implements_function("network_open")
    if static:
        weights = weights_of(pathlib.Path(folder, manifest.get("weights", WEIGHTS)))
        run = called(module, weights, manifest)
    else:
        run = interpreted(module, manifest)
    run = released(run)
    kinds = [wanted["dtype"] for wanted in manifest["inputs"]]

    def checked(*inputs: Any) -> Any:
        check_count(inputs, manifest)
        for array, wanted in zip(inputs, manifest["inputs"], strict=True):
            if list(np.shape(array)) != wanted["shape"]:
                raise ValueError(f"{wanted['name']} must have shape {wanted['shape']}")
        pairs = zip(inputs, kinds, strict=True)
        outputs = run([np.asarray(array, kind, order="C") for array, kind in pairs])
        return outputs[0] if len(outputs) == 1 else outputs

    return checked


BOUND = threading.local()
"""The cores that TVM has bound this thread to, as ``cores``; none before it has."""


def released(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes with TVM's threads, and leaves the caller on the cores it was on.

    TVM binds whoever has it make its threads to one core, where those leave room. Whatever the
    caller does and starts afterwards would be bound to that core as well.
    """
    if not hasattr(os, "sched_setaffinity"):
        return run
    core = ctypes.CDLL(None).sched_getcpu

    def from_anywhere(*arguments: Any) -> Any:
        bound = getattr(BOUND, "cores", None)
        if bound is not None and core() in bound:
            return run(*arguments)
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, (bound or before) & before or before)
        try:
            return run(*arguments)
        finally:
            BOUND.cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, before)

    return from_anywhere


def check_count(inputs: Sequence[Any], manifest: dict[str, Any]) -> None:
    """See that there is an array for each input."""
    if len(inputs) != len(manifest["inputs"]):
        names = ", ".join(wanted["name"] for wanted in manifest["inputs"])
        raise ValueError(f"the network takes {names}, not {len(inputs)} arrays")


Arrays = list[np.ndarray[Any, Any]]

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
