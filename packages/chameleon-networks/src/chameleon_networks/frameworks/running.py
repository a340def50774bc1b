"""A network run by what a user has already: torch, torch.compile, onnxruntime, OpenVINO."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from chameleon_core.arrays import Arrays
from chameleon_system.thread_limit import usable_threads
from chameleon_tvm.types import HALVES

Network = Callable[[Arrays], Arrays]
"""Outputs of a network for its inputs."""

TORCH, TORCH_COMPILE, ONNXRUNTIME, OPENVINO = "torch", "torch.compile", "onnxruntime", "openvino"
"""What can run a network."""

TORCH_FLOAT32 = "torch float32"
"""Torch, with a network of half precision in float32."""

TORCH_FLOAT64 = "torch float64"
"""Torch, with a network of float32 in float64."""

ONNXRUNTIME_FLOAT32 = "onnxruntime float32"
"""Onnxruntime, with what a quantized network computes between quantized tensors in float32."""

_NEEDS = {ONNXRUNTIME: ("onnxruntime", "onnxscript"), OPENVINO: ("openvino",)}
"""Modules without which one cannot run a network of torch."""


@attrs.frozen(kw_only=True)
class NetworkForms:
    """A network of float32 in the forms that frameworks read, each made when it is asked for.

    Attributes:
        program: gives the ``torch.export.ExportedProgram``; None of a network that torch has not.
        onnx: gives an ONNX file, or its content.
        shapes: of inputs that the file leaves open, by name.
    """

    program: Callable[[], Any] | None
    onnx: Callable[[], str | bytes]
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({})


def installed(*names: str) -> tuple[str, ...]:
    """The names of what can run a network of torch here; nothing is imported."""
    absent = left_out(*names)
    return tuple(name for name in names if name not in absent)


def left_out(*names: str) -> dict[str, str]:
    """Programs that cannot run a network of torch here, by name, with the reason."""
    return not_installed({name: _NEEDS.get(name, ()) for name in names})


def not_installed(needs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Those that lack a module, by name, with the modules.

    Args:
        needs: for each name the modules that it needs.
    """
    absent: dict[str, str] = {}
    for name, modules in needs.items():
        lacking = [module for module in modules if importlib.util.find_spec(module) is None]
        if lacking:
            verb = "is" if len(lacking) == 1 else "are"
            absent[name] = f"{' and '.join(lacking)} {verb} not installed"
    return absent


def asked_threads(threads: int) -> int | None:
    """A number of threads to ask a framework for; None if it is all that there are.

    Users leave that to the framework, which may know better.
    """
    return threads if threads < usable_threads() else None


def torch_network(program: Any, *, compiled: bool, threads: int) -> Network:
    """An exported program run by torch; if it is in half precision, it gets and gives float32.

    Args:
        program: the ``torch.export.ExportedProgram``.
        compiled: by torch.compile with frozen weights, rather than operator by operator.
        threads: it computes with.
    """
    limit_torch(threads)
    network = program.module()
    return torch_inference(compiled_by_torch(network) if compiled else network, program)


def limit_torch(threads: int) -> None:
    """Let torch compute with fewer threads than there are."""
    asked = asked_threads(threads)
    if asked is not None:
        importlib.import_module("torch").set_num_threads(asked)


def compiled_by_torch(network: Any) -> Any:
    """A module as torch.compile computes it, with frozen weights."""
    torch = importlib.import_module("torch")
    # Freezing is what lets it pack weights; it is off by default.
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.freezing = True
    return torch.compile(network)


def torch_inference(network: Any, program: Any) -> Network:
    """A module made from an exported program as a function of arrays.

    Args:
        network: takes the program's arguments.
        program: the ``torch.export.ExportedProgram``.
    """
    torch = importlib.import_module("torch")
    tree = importlib.import_module("torch.utils._pytree")
    examples, structure = tree.tree_flatten(program.example_inputs)

    def run(inputs: Arrays) -> Arrays:
        with torch.no_grad():
            converted = map(torch.from_numpy, inputs)
            # What is no tensor, such as a flag, is what it was when the program was exported.
            leaves = [
                next(converted).to(example.dtype) if isinstance(example, torch.Tensor) else example
                for example in examples
            ]
            positional, keywords = tree.tree_unflatten(leaves, structure)
            result = network(*positional, **keywords)
        # Some networks return an object of their library's, with names and things left out.
        leaves = tree.tree_leaves(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        short = {getattr(torch, name) for name in HALVES}
        return [(tensor.float() if tensor.dtype in short else tensor).numpy() for tensor in tensors]

    return run


def onnx_bytes(program: Any) -> bytes:
    """An exported program as an ONNX file's content.

    Args:
        program: the ``torch.export.ExportedProgram``.
    """
    exporter = importlib.import_module("torch.onnx")
    content: bytes = exporter.export(
        program, dynamo=True, verbose=False
    ).model_proto.SerializeToString()
    return content


def onnx_session(file: str | bytes, *, threads: int, fused: bool = True) -> Network:
    """An ONNX file run by onnxruntime on the CPU.

    Args:
        file: the file, or its content.
        threads: it computes with.
        fused: whether several nodes may become one kernel, rather than each be computed by itself.
    """
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = asked_threads(threads) or 0
    if not fused:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]

    def run(inputs: Arrays) -> Arrays:
        outputs = session.run(None, dict(zip(names, inputs, strict=True)))
        return [np.asarray(output) for output in outputs]

    return run


def openvino_network(
    model: Any, *, threads: int, shapes: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Network:
    """A network run by OpenVINO on the CPU, in float32.

    Args:
        model: an ONNX file, or a ``torch.export.ExportedProgram``.
        threads: it computes with.
        shapes: of inputs that the model leaves open, by name; it is faster if it knows them.
    """
    # Without the hint bfloat16 is used if the CPU has it.
    compiled = openvino_compiled(openvino_model(model, shapes), threads=threads, hint="f32")
    return openvino_inference(compiled)


def openvino_model(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """A network as OpenVINO has it; arguments as for ``openvino_network``."""
    openvino = importlib.import_module("openvino")
    converted = openvino.convert_model(model)
    if shapes:
        converted.reshape({name: list(shape) for name, shape in shapes.items()})
    return converted


def openvino_compiled(model: Any, *, threads: int, hint: str | None) -> Any:
    """A model compiled by OpenVINO for the CPU.

    Args:
        model: its own.
        threads: it computes with.
        hint: the precision to compute in, by OpenVINO's name, or None.
    """
    openvino = importlib.import_module("openvino")
    settings: dict[str, object] = {"PERFORMANCE_HINT": "LATENCY"}
    asked = asked_threads(threads)
    if asked is not None:
        settings["INFERENCE_NUM_THREADS"] = asked
    if hint is not None:
        settings["INFERENCE_PRECISION_HINT"] = hint
    return openvino.Core().compile_model(model, "CPU", settings)


def openvino_inference(compiled: Any) -> Network:
    """A model compiled by OpenVINO as a function of arrays."""
    request = compiled.create_infer_request()

    def run(inputs: Arrays) -> Arrays:
        results = request.infer(list(inputs))
        return [np.asarray(results[output]) for output in compiled.outputs]

    return run
