"""Runs a network with TVM's virtual machine.

This file is copied into the folder of a network that needs the virtual machine.
"""

import os
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = list[np.ndarray[Any, Any]]

MOST_THREADS = 1024
FORKED = (
    "TVM's virtual machine runs this network and does not survive a fork: start child processes by "
    "'spawn', or load such networks in them alone"
)


class Machine:
    """Runs a network with TVM's virtual machine, one call at a time."""

    def __init__(self, file: pathlib.Path, manifest: Mapping[str, Any], threads: int) -> None:
        wanted = threads or min(manifest["threads"], _usable_cores())
        self.threads = max(1, min(wanted, MOST_THREADS))
        # TVM reads its variable when it starts its threads, and starts too few without it.
        variable = os.environ.setdefault("TVM_NUM_THREADS", str(self.threads))
        import tvm  # noqa: PLC0415 - most networks need no TVM
        from tvm import relax  # noqa: PLC0415

        # A forked child process would wait forever for the threads that TVM started in the parent.
        if vars(tvm).setdefault("_process_of_threads", os.getpid()) != os.getpid():
            raise RuntimeError(FORKED)
        self._start = tvm.get_global_func("runtime.config_threadpool")
        self._threads = int(variable) if variable.isdecimal() else self.threads
        self._computing = threading.RLock()
        self._process = os.getpid()
        self._unbound(self._start, 1, self._threads)
        kinds = [(wanted["shape"], wanted["dtype"]) for wanted in manifest["inputs"]]
        self._outputs = len(manifest["outputs"]) + len(manifest.get("counts", ()))
        try:
            module = tvm.runtime.load_module(str(file))
            self.machine: Any = relax.VirtualMachine(module, tvm.cpu())
            # Each call fills the same tensors, because new memory from the system would slow it
            # down.
            self._tensors = [tvm.runtime.empty(shape, dtype) for shape, dtype in kinds]
        except Exception as error:
            raise RuntimeError(f"TVM cannot load {file}: {error}") from error

    def run(self, inputs: Arrays, *_: Any) -> Arrays:
        """Compute the outputs of one inference."""
        if os.getpid() != self._process:
            raise RuntimeError(FORKED)
        with self._computing:
            if self.machine is None:
                raise RuntimeError("the network is closed")
            for tensor, array in zip(self._tensors, inputs, strict=True):
                tensor.copyfrom(array)
            result = self._unbound(self.machine["main"], *self._tensors)
            tensors = [result] if hasattr(result, "numpy") else list(result)
            state = tensors[self._outputs :]
            for buffer, tensor in zip(inputs[len(inputs) - len(state) :], state, strict=True):
                np.copyto(buffer, tensor.numpy())
            return [tensor.numpy() for tensor in tensors[: self._outputs]]

    def _unbound(self, function: Any, *arguments: Any) -> Any:
        """Call a TVM function that binds its caller to one core, then undo the binding."""
        if not hasattr(os, "sched_setaffinity"):
            return function(*arguments)
        before = os.sched_getaffinity(0)
        try:
            return function(*arguments)
        finally:
            if os.sched_getaffinity(0) != before:
                os.sched_setaffinity(0, before)

    def close(self) -> None:
        """Free the memory of the network after running calls have ended."""
        # In a forked child process, the lock may be held by a thread that no longer exists.
        if os.getpid() != self._process:
            self.machine = None
            return
        with self._computing:
            self.machine = None


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
