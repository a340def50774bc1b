"""Loads the compiled network in this folder; needs apache-tvm and nothing else."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target import codegen


def load(folder: str | pathlib.Path = pathlib.Path(__file__).parent) -> Callable[..., Any]:
    """The network as a function: arrays in, an array out, or a list of several."""
    manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
    host = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    lacking = [f for f in manifest["cpu_features"] if not codegen.target_has_features(f, host)]
    if lacking:
        raise RuntimeError(f"this CPU lacks {', '.join(lacking)}, which the network was built for")
    module = tvm.runtime.load_module(str(pathlib.Path(folder, manifest["module"]).resolve()))
    # TVM's own default may be one thread.
    threads = int(os.environ.get("TVM_NUM_THREADS", manifest["threads"]))
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    machine: Any = relax.VirtualMachine(module, tvm.cpu())
    # Filled anew by each call, which memory fresh from the system would slow down.
    held = [tvm.runtime.empty(wanted["shape"], wanted["dtype"]) for wanted in manifest["inputs"]]

    def network(*inputs: Any) -> Any:
        if len(inputs) != len(held):
            names = ", ".join(wanted["name"] for wanted in manifest["inputs"])
            raise ValueError(f"the network takes {names}, not {len(inputs)} arrays")
        for array, wanted in zip(inputs, manifest["inputs"], strict=True):
            if list(np.shape(array)) != wanted["shape"]:
                raise ValueError(f"{wanted['name']} must have shape {wanted['shape']}")
        for tensor, array in zip(held, inputs, strict=True):
            tensor.copyfrom(np.ascontiguousarray(array, tensor.dtype))
        found = machine["main"](*held)
        outputs = [found] if hasattr(found, "numpy") else list(found)
        return outputs[0].numpy() if len(outputs) == 1 else [one.numpy() for one in outputs]

    return network
