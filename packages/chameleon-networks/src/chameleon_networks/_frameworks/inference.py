"""Runs a network with a framework: torch, torch.compile, ONNX Runtime or OpenVINO."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays
from chameleon_system.api import usable_threads
from chameleon_tvm.api import HALVES
from numpy.typing import NDArray

Network = Callable[[Arrays], Arrays]
"""A function that computes the outputs of a network for its inputs."""

TORCH, TORCH_COMPILE, ONNXRUNTIME, OPENVINO = "torch", "torch.compile", "onnxruntime", "openvino"
"""Names of frameworks that run networks."""

TORCH_FLOAT32 = "torch float32"
"""torch, which runs a network of half precision in float32."""

TORCH_FLOAT64 = "torch float64"
"""torch, which runs a network of float32 in float64."""

ONNXRUNTIME_FLOAT32 = "onnxruntime float32"
"""ONNX Runtime, which computes in float32 between the quantized tensors of a network."""

ONNXRUNTIME_UNFUSED = "onnxruntime without optimizations"
"""ONNX Runtime, which computes each node of a file as it is."""

ONNX_REFERENCE = "onnx.reference"
"""The evaluator of the ONNX package, which computes each operator as the standard defines it."""

ONNX_IN_FLOAT64 = "onnx.reference in float64"
"""The same evaluator, which computes in float64 what a network computes in float32."""

_RECURRENT = ("LSTM", "GRU", "RNN")
_LENGTHS = 4
_IGNORED = frozenset({"activations", "clip", "input_forget"})
"""Parts of recurrent nodes that ONNX's reference evaluator ignores: an input, and attributes."""

_NEEDS = {ONNXRUNTIME: ("onnxruntime", "onnxscript"), OPENVINO: ("openvino",)}
"""Modules that a framework needs to run a torch network, by its name."""


@attrs.frozen(kw_only=True)
class NetworkForms:
    """A network in float32 in the forms that frameworks read, each made when it is needed.

    Attributes:
        program: A function that returns the ``torch.export.ExportedProgram``. None if the network
            is not a torch network.
        onnx: A function that returns the path of an ONNX file, or its content.
        shapes: The shapes of inputs whose sizes the ONNX file leaves open, by name.
        openvino: The path of a file with OpenVINO's model of the network, which the first process
            that needs it may write. None if each process converts the network.
    """

    program: Callable[[], Any] | None
    onnx: Callable[[], str | bytes]
    shapes: Mapping[str, Sequence[int]] = MappingProxyType({})
    openvino: Path | None = None

    def onnx_file(self, folder: Path) -> str:
        """The path of the ONNX file, which is written into a folder if there is none yet."""
        source = self.onnx()
        if isinstance(source, str):
            return source
        file = folder / "model.onnx"
        file.write_bytes(source)
        return str(file)


def installed(*names: str) -> tuple[str, ...]:
    """The frameworks that can run a torch network here, without importing them."""
    absent = left_out(*names)
    return tuple(name for name in names if name not in absent)


def left_out(*names: str) -> dict[str, str]:
    """The frameworks that cannot run a torch network on this machine, by name, with the reason."""
    return missing_modules({name: _NEEDS.get(name, ()) for name in names})


def missing_modules(needs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The frameworks that lack a Python module, each with a message about it."""
    absent: dict[str, str] = {}
    for name, modules in needs.items():
        lacking = [module for module in modules if importlib.util.find_spec(module) is None]
        if lacking:
            verb = "is" if len(lacking) == 1 else "are"
            absent[name] = f"{' and '.join(lacking)} {verb} not installed"
    return absent


def explicit_threads(threads: int) -> int | None:
    """The number of threads to set; None if the framework may use all, as users then set none."""
    return threads if threads < usable_threads() else None


def torch_network(program: Any, *, compiled: bool, threads: int) -> Network:
    """Run an exported program with torch, whose half-precision outputs become float32."""
    limit_torch(threads)
    network = program.module()
    return torch_inference(compile_with_torch(network) if compiled else network, program)


def limit_torch(threads: int) -> None:
    """Set torch's number of threads, unless torch may use all threads."""
    asked = explicit_threads(threads)
    if asked is not None:
        importlib.import_module("torch").set_num_threads(asked)


def compile_with_torch(network: Any) -> Any:
    """Compile a module with torch.compile, with frozen weights."""
    torch = importlib.import_module("torch")
    # Inductor packs weights only if freezing is on; it is off by default.
    inductor: Any = importlib.import_module("torch._inductor.config")
    inductor.freezing = True
    return torch.compile(network)


def like(example: Any, value: Any) -> Any:
    """A tensor with the dtype of an example, and with its order in memory, which networks see."""
    value = value.to(example.dtype)
    if example.is_contiguous() or example.shape != value.shape or 0 in example.stride():
        return value
    empty = importlib.import_module("torch").empty_strided
    return empty(example.shape, example.stride(), dtype=example.dtype).copy_(value)


def torch_inference(network: Any, program: Any) -> Network:
    """Wrap a module that was made from an exported program as a function of arrays."""
    torch = importlib.import_module("torch")
    tree = importlib.import_module("torch.utils._pytree")
    examples, structure = tree.tree_flatten(program.example_inputs)

    def run(inputs: Arrays) -> Arrays:
        with torch.no_grad():
            converted = map(torch.from_numpy, inputs)
            # An input that is not a tensor, such as a flag, keeps its value from the export of the
            # program.
            leaves = [
                like(example, next(converted)) if isinstance(example, torch.Tensor) else example
                for example in examples
            ]
            positional, keywords = tree.tree_unflatten(leaves, structure)
            result = network(*positional, **keywords)
        # Some networks return an object of their library's, with names and things left out.
        leaves = tree.tree_leaves(result)
        # An output may be a weight, which requires gradients.
        tensors = [leaf.detach().resolve_neg() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        short = {getattr(torch, name) for name in HALVES}
        return [(tensor.float() if tensor.dtype in short else tensor).numpy() for tensor in tensors]

    return run


def onnx_bytes(program: Any) -> bytes:
    """Convert a network from torch's export format to ONNX, for frameworks that read only ONNX."""
    exporter = importlib.import_module("torch.onnx")
    content: bytes = exporter.export(
        program, dynamo=True, verbose=False
    ).model_proto.SerializeToString()
    return content


def onnx_session(file: str | bytes, *, threads: int, fused: bool = True) -> Network:
    """Run an ONNX file with ONNX Runtime on the CPU."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = explicit_threads(threads) or 0
    if not fused:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]

    def run(inputs: Arrays) -> Arrays:
        outputs = session.run(None, dict(zip(names, inputs, strict=True)))
        return [np.asarray(output) for output in outputs]

    return run


def onnx_evaluator(model: Any, *, in_float64: bool = False) -> Network:
    """Run an ONNX file with the reference evaluator of the ONNX package.

    Args:
        model: The file, or a model that ``onnx`` has read.
        in_float64: Whether the model takes and gives float64 for float32.

    Raises:
        NotImplementedError: The evaluator ignores something that a recurrent node asks for.
    """
    evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(model)
    for node in evaluator.proto_.graph.node:
        if node.op_type in _RECURRENT:
            lengths = ["sequence_lens"] if any(node.input[_LENGTHS:][:1]) else []
            ignored = [*lengths, *_IGNORED.intersection(each.name for each in node.attribute)]
            if ignored:
                raise NotImplementedError(f"it ignores {ignored[0]} of a node {node.op_type}")

    def run(inputs: Arrays) -> Arrays:
        # The evaluator may write into its inputs.
        feeds = {
            name: _converted(array, np.float32, np.float64) if in_float64 else array.copy()
            for name, array in zip(evaluator.input_names, inputs, strict=True)
        }
        with np.errstate(all="ignore"):
            outputs = [np.asarray(output) for output in evaluator.run(None, feeds)]
            if in_float64:
                return [_converted(output, np.float64, np.float32) for output in outputs]
            return outputs

    return run


def _converted(array: NDArray[Any], kind: type, to: type) -> NDArray[Any]:
    """A copy of an array, in another dtype if it has one."""
    return array.astype(to if array.dtype == kind else array.dtype)


def openvino_network(forms: NetworkForms, *, threads: int) -> Network:
    """Run a network with OpenVINO in float32, and save the model for other dtypes."""
    model, file = openvino_model(forms), forms.openvino
    if file is not None and not file.exists() and openvino_default() != "f32":
        importlib.import_module("openvino").serialize(model, file)
    # Without the hint bfloat16 is used if the CPU has it.
    return openvino_inference(openvino_compiled(model, threads=threads, hint="f32"))


def openvino_precision(compiled: Any) -> str:
    """The precision of a compiled OpenVINO model, by OpenVINO's name, such as ``bf16``."""
    return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())


@cache
def openvino_default() -> str:
    """OpenVINO's default dtype on this machine, such as ``bf16``."""
    # A model that computes nothing takes milliseconds. For some networks OpenVINO may still choose
    # float32, such as for those with convolutions on ARM.
    operators: Any = importlib.import_module("openvino.opset13")
    numbers = operators.parameter([1], np.float32)
    model = importlib.import_module("openvino").Model([numbers], [numbers], "nothing")
    return openvino_precision(openvino_compiled(model, threads=1, hint=None))


def openvino_model(forms: NetworkForms) -> Any:
    """Convert a network to an OpenVINO model with known shapes, or read the model."""
    openvino = importlib.import_module("openvino")
    if forms.openvino is not None and forms.openvino.exists():
        return openvino.Core().read_model(forms.openvino)
    source = forms.program if forms.program is not None else forms.onnx
    converted = openvino.convert_model(source())
    if forms.shapes:
        converted.reshape({name: list(shape) for name, shape in forms.shapes.items()})
    return converted


def openvino_compiled(model: Any, *, threads: int, hint: str | None) -> Any:
    """Compile an OpenVINO model for the CPU."""
    openvino = importlib.import_module("openvino")
    settings: dict[str, object] = {"PERFORMANCE_HINT": "LATENCY"}
    asked = explicit_threads(threads)
    if asked is not None:
        settings["INFERENCE_NUM_THREADS"] = asked
    if hint is not None:
        settings["INFERENCE_PRECISION_HINT"] = hint
    if hint == "f32":
        # By default, products with weights of four or eight bits round their inputs to eight bits.
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    return openvino.Core().compile_model(model, "CPU", settings)


def openvino_inference(compiled: Any) -> Network:
    """Wrap a compiled OpenVINO model as a function of arrays."""
    request = compiled.create_infer_request()

    def run(inputs: Arrays) -> Arrays:
        results = request.infer(list(inputs))
        return [np.asarray(results[output]) for output in compiled.outputs]

    return run
