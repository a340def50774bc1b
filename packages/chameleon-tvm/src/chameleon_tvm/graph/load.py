"""Loads the compiled network in this folder; needs apache-tvm and nothing else."""

import json
import os
import pathlib
import platform
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.target import codegen

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
    run = called(module, manifest) if static else interpreted(module, manifest)
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


def called(
    module: Any, manifest: dict[str, Any], times: Sequence[Any] = ()
) -> Callable[[Arrays], Arrays]:
    """A network of fixed shapes: kernels called one after the other, on the caller's arrays.

    Args:
        module: the library.
        manifest: what describes it.
        times: an array of int64 for the nanoseconds of each kernel, where they are wanted.
    """
    run = module["network_open"]()
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
