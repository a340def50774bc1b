"""Loads the compiled network in this folder; needs apache-tvm and nothing else."""

import json
import os
import pathlib
import platform
import re
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
    """Those of LLVM's features that this machine's CPU lacks.

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


def _plain(name: str) -> str:
    return re.sub(r"[._-]", "", name)


def load(folder: str | pathlib.Path = pathlib.Path(__file__).parent) -> Callable[..., Any]:
    """The network as a function: arrays in, a new array out, or a list of several.

    Its memory is its own, so threads may run several loaded networks, but each one at a time.
    """
    manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
    lacking = lacking_features(manifest["cpu_features"])
    if lacking:
        raise RuntimeError(f"this CPU lacks {', '.join(lacking)}, which the network was built for")
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
        if len(inputs) != len(kinds):
            names = ", ".join(wanted["name"] for wanted in manifest["inputs"])
            raise ValueError(f"the network takes {names}, not {len(inputs)} arrays")
        for array, wanted in zip(inputs, manifest["inputs"], strict=True):
            if list(np.shape(array)) != wanted["shape"]:
                raise ValueError(f"{wanted['name']} must have shape {wanted['shape']}")
        pairs = zip(inputs, kinds, strict=True)
        outputs = run([np.ascontiguousarray(array, kind) for array, kind in pairs])
        return outputs[0] if len(outputs) == 1 else outputs

    return network


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
