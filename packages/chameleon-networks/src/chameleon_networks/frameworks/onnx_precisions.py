"""Runs a network with ONNX Runtime in int8."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chameleon_core.arrays import Arrays
from chameleon_system.processes.stamps import temporary_folder
from chameleon_system.processor import own_architecture
from chameleon_tvm.types import INT8

from chameleon_networks.frameworks.reduced import ReducedNetwork, Reduction, sums_saturate
from chameleon_networks.frameworks.running import NetworkForms, onnx_session


def quantized(asked: Reduction) -> ReducedNetwork:
    """Quantize a network to int8 by ONNX Runtime's static quantization (QDQ), weights per channel.

    The options follow ONNX Runtime's documentation (Quantize ONNX models, and ``quantize_static``)
    for CPUs. Activations are uint8 and weights int8. Weights have 7 bits if sums saturate. On ARM,
    activations are int8 too. As the documentation advises, the network's shapes are inferred and
    its graph is simplified first.

    Args:
        asked: The network, the calibration inputs and the number of threads.

    Raises:
        Exception: ONNX Runtime cannot quantize or run the network.
    """
    with temporary_folder() as folder:
        file = quantized_file(asked.forms, asked.calibration, Path(folder))
        return ReducedNetwork(run=onnx_session(file, threads=asked.threads), precision=INT8)


def quantized_file(forms: NetworkForms, calibration: Sequence[Arrays], folder: Path) -> str:
    """Write an ONNX file of a network in int8, quantized as ``quantized`` says.

    Args:
        forms: The network.
        calibration: The inputs of several inferences.
        folder: The folder for the file and for intermediate files.

    Returns:
        The path of the file.

    Raises:
        Exception: ONNX Runtime cannot quantize the network.
    """
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    preprocess: Any = importlib.import_module("onnxruntime.quantization.shape_inference")
    onnx: Any = importlib.import_module("onnx")
    kinds = quantization.QuantType
    unsigned = own_architecture() != "aarch64"
    simple, output = str(Path(folder, "simple.onnx")), str(Path(folder, "quantized.onnx"))
    source = forms.onnx()
    if isinstance(source, bytes):
        # Of a content ONNX Runtime loses the weights on the way.
        file = Path(folder, "given.onnx")
        file.write_bytes(source)
        source = str(file)
    preprocess.quant_pre_process(source, simple, skip_symbolic_shape=True)
    graph = onnx.load(simple, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [tensor.name for tensor in graph.input if tensor.name not in constants]
    rows = (dict(zip(names, inputs, strict=True)) for inputs in calibration)
    quantization.quantize_static(
        simple,
        output,
        SimpleNamespace(get_next=lambda: next(rows, None)),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=sums_saturate(),
        activation_type=kinds.QUInt8 if unsigned else kinds.QInt8,
        weight_type=kinds.QInt8,
    )
    return output
