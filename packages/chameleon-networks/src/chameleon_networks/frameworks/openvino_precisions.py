"""Runs a network with OpenVINO in int8, in half precision, or in OpenVINO's own choice."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from chameleon_core.arrays import Arrays
from chameleon_core.errors import ConfigError
from chameleon_tvm.types import BFLOAT16, FLOAT16, FLOAT32, INT8

from chameleon_networks.frameworks.reduced import ReducedNetwork, Reduction, sums_saturate
from chameleon_networks.frameworks.running import (
    NetworkForms,
    openvino_compiled,
    openvino_inference,
    openvino_model,
)

NAMES = {"f32": FLOAT32, "bf16": BFLOAT16, "f16": FLOAT16}
"""Names of dtypes by OpenVINO's names of them."""

HINTS = {ours: theirs for theirs, ours in NAMES.items()}
"""OpenVINO's names of dtypes by the usual names."""


def as_it_comes(asked: Reduction) -> ReducedNetwork:
    """Open a network in OpenVINO with OpenVINO's default precision.

    OpenVINO computes in bfloat16 or float16 if the CPU has instructions for that dtype. See
    "Floating Point Data Types Specifics" on the page "CPU Device" of OpenVINO's documentation.

    Args:
        asked: The network and the number of threads.
    """
    return _opened(model_of(asked.forms), threads=asked.threads)


def in_half(asked: Reduction) -> ReducedNetwork:
    """Open a network in OpenVINO with a hint to compute in bfloat16 or in float16.

    Args:
        asked: The network, the precision and the number of threads.

    Raises:
        ConfigError: OpenVINO computes in another precision in spite of the hint.
    """
    precision = asked.precision
    network = _opened(model_of(asked.forms), threads=asked.threads, hint=HINTS[precision])
    if network.precision != precision:
        raise ConfigError(
            f"asked for {precision} it computes in {network.precision} on this CPU",
            hint="The CPU has no instructions for it that OpenVINO uses.",
        )
    return network


def quantized(asked: Reduction) -> ReducedNetwork:
    """Open a network in OpenVINO in int8, by NNCF's static quantization after training.

    The remaining floating-point operators have the precision that OpenVINO chooses. All options are
    NNCF's defaults, except two that its documentation advises. Networks with attention have
    ``ModelType.TRANSFORMER``. On CPUs whose 8-bit sums saturate, the weights of the first layers
    have 7 bits (NNCF, ``OverflowFix``).

    Args:
        asked: The network, the calibration inputs and the number of threads.

    Raises:
        Exception: NNCF cannot quantize the network.
    """
    network = _opened(quantized_model(asked.forms, asked.calibration), threads=asked.threads)
    rest = network.precision
    named = INT8 if rest == FLOAT32 else f"{INT8}, the rest {rest}"
    return ReducedNetwork(run=network.run, precision=named)


def quantized_model(forms: NetworkForms, calibration: Sequence[Arrays]) -> Any:
    """Quantize a network to int8 by NNCF's static quantization, and return it as an OpenVINO model.

    The options of NNCF are those that ``quantized`` describes.

    Args:
        forms: The network, in the forms that frameworks read.
        calibration: The inputs of several inferences.

    Raises:
        Exception: NNCF cannot quantize the network.
    """
    nncf = importlib.import_module("nncf")
    model = model_of(forms)
    names = [tensor.get_any_name() for tensor in model.inputs]
    dataset = nncf.Dataset(list(calibration), lambda inputs: dict(zip(names, inputs, strict=True)))
    fix = nncf.OverflowFix.FIRST_LAYER if sums_saturate() else nncf.OverflowFix.DISABLE
    return nncf.quantize(
        model,
        dataset,
        subset_size=len(calibration),
        model_type=nncf.ModelType.TRANSFORMER if _has_attention(model) else None,
        advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=fix),
    )


def model_of(forms: NetworkForms) -> Any:
    """The network in float32 as an OpenVINO model."""
    source = forms.program if forms.program is not None else forms.onnx
    return openvino_model(source(), forms.shapes)


def _opened(model: Any, *, threads: int, hint: str | None = None) -> ReducedNetwork:
    compiled = openvino_compiled(model, threads=threads, hint=hint)
    kind = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    return ReducedNetwork(run=openvino_inference(compiled), precision=NAMES.get(kind, kind))


def _has_attention(model: Any) -> bool:
    """Whether an OpenVINO model has an attention operator or multiplies the result of a softmax."""
    for node in model.get_ops():
        kind = node.get_type_name()
        if kind == "ScaledDotProductAttention":
            return True
        if kind == "Softmax" and any(
            target.get_node().get_type_name() == "MatMul"
            for target in node.output(0).get_target_inputs()
        ):
            return True
    return False
