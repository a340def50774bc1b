"""A network run by OpenVINO in another precision than float32."""

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
"""OpenVINO's names of types, and ours."""

HINTS = {ours: theirs for theirs, ours in NAMES.items()}
"""OpenVINO's names of types by ours."""


def as_it_comes(asked: Reduction) -> ReducedNetwork:
    """The network without a word about its precision.

    OpenVINO takes bfloat16 or float16 if the CPU has instructions for it (OpenVINO, CPU
    device, floating-point data types specifics).
    """
    return _opened(model_of(asked.forms), threads=asked.threads)


def in_half(asked: Reduction) -> ReducedNetwork:
    """The network with a hint to compute in bfloat16 or in float16.

    Raises:
        ConfigError: it computes in another one all the same.
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
    """The network in int8 by NNCF's static quantization after training; nothing else is asked.

    OpenVINO computes the floats that stay in the precision that it takes by itself. NNCF's defaults
    hold, but for two options that its documentation advises. Networks with attention have
    ``ModelType.TRANSFORMER``. The first layers' weights are in 7 bits if sums saturate, and else
    none are (NNCF, ``OverflowFix``).

    Raises:
        Exception: NNCF cannot quantize it.
    """
    network = _opened(quantized_model(asked.forms, asked.calibration), threads=asked.threads)
    rest = network.precision
    named = INT8 if rest == FLOAT32 else f"{INT8}, the rest {rest}"
    return ReducedNetwork(run=network.run, precision=named)


def quantized_model(forms: NetworkForms, calibration: Sequence[Arrays]) -> Any:
    """The network in int8 as OpenVINO's model; see ``quantized``.

    Raises:
        Exception: NNCF cannot quantize it.
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
    """The network in float32 as OpenVINO's model."""
    source = forms.program if forms.program is not None else forms.onnx
    return openvino_model(source(), forms.shapes)


def _opened(model: Any, *, threads: int, hint: str | None = None) -> ReducedNetwork:
    compiled = openvino_compiled(model, threads=threads, hint=hint)
    kind = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    return ReducedNetwork(run=openvino_inference(compiled), precision=NAMES.get(kind, kind))


def _has_attention(model: Any) -> bool:
    """Whether an OpenVINO model multiplies with what a softmax gives, or says so by name."""
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
