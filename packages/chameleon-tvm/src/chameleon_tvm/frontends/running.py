"""A network run by what a user has already: torch, torch.compile, onnxruntime."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from chameleon_core.stages import Arrays

Network = Callable[[Arrays], Arrays]
"""Outputs of a network for its inputs."""


def torch_network(program: Any, *, compiled: bool, threads: int) -> Network:
    """An exported program run by torch.

    Args:
        program: the ``torch.export.ExportedProgram``.
        compiled: by torch.compile with frozen weights, rather than operator by operator.
        threads: it computes with.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    network = program.module()
    if compiled:
        # Freezing is what lets it pack weights; it is off by default.
        inductor: Any = importlib.import_module("torch._inductor.config")
        inductor.freezing = True
        network = torch.compile(network)

    def run(inputs: Arrays) -> Arrays:
        with torch.no_grad():
            found = network(*(torch.from_numpy(array) for array in inputs))
        outputs = found if isinstance(found, tuple | list) else [found]
        return [output.numpy() for output in outputs]

    return run


def onnx_session(file: str, *, threads: int) -> Network:
    """An ONNX file run by onnxruntime on the CPU.

    Args:
        file: the file.
        threads: it computes with.
    """
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(inputs: Arrays) -> Arrays:
        found = session.run(None, dict(zip(names, inputs, strict=True)))
        return [np.asarray(output) for output in found]

    return run
