"""Loads the compiled network in this folder; needs apache-tvm and nothing else."""

import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.target import codegen


def load(folder: str | pathlib.Path = pathlib.Path(__file__).parent) -> Callable[..., Any]:
    """The network as a function: arrays in, a new array out, or a list of several.

    Its memory is its own, so threads may run several loaded networks, but each one at a time.
    """
    manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
    host = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    lacking = [f for f in manifest["cpu_features"] if not codegen.target_has_features(f, host)]
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
