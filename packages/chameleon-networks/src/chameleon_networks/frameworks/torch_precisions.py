"""Runs a network with torch.compile in int8 or in half precision."""

from __future__ import annotations

import importlib
from typing import Any

from chameleon_tvm.types import INT8

from chameleon_networks.frameworks.precision import in_half as half_program
from chameleon_networks.frameworks.reduced import ReducedNetwork, Reduction, sums_saturate
from chameleon_networks.frameworks.running import (
    NetworkForms,
    compiled_by_torch,
    limit_torch,
    torch_inference,
    torch_network,
)

_PT2E = "torchao.quantization.pt2e"


def in_half(asked: Reduction) -> ReducedNetwork:
    """Convert a whole network to bfloat16 or float16, and compile it with ``torch.compile``.

    Args:
        asked: The network, the precision and the number of threads.

    Raises:
        Exception: torch cannot export or compile the converted network.
    """
    program = half_program(_program(asked.forms), asked.precision)
    run = torch_network(program, compiled=True, threads=asked.threads)
    return ReducedNetwork(run=run, precision=asked.precision)


def quantized(asked: Reduction) -> ReducedNetwork:
    """Quantize a network to int8 by torchao's static quantization (pt2e) for inductor on x86.

    The steps follow PyTorch's tutorial (PyTorch 2 Export Quantization with X86 Backend through
    Inductor). Activations are uint8 and weights int8 per channel, and the weights are frozen when
    the network is compiled. Activations have 7 bits if sums saturate, as torchao advises for CPUs
    without VNNI.

    Args:
        asked: The network, the calibration inputs and the number of threads.

    Raises:
        Exception: torch cannot quantize or compile the network.
    """
    pt2e: Any = importlib.import_module(f"{_PT2E}.quantize_pt2e")
    x86: Any = importlib.import_module(f"{_PT2E}.quantizer.x86_inductor_quantizer")
    limit_torch(asked.threads)
    program = _program(asked.forms)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(
        x86.get_default_x86_inductor_quantization_config(reduce_range=sums_saturate())
    )
    observed = pt2e.prepare_pt2e(program.module(), quantizer)
    observe = torch_inference(observed, program)
    for inputs in asked.calibration:
        observe(inputs)
    converted = pt2e.convert_pt2e(observed)
    run = torch_inference(compiled_by_torch(converted), program)
    return ReducedNetwork(run=run, precision=INT8)


def _program(forms: NetworkForms) -> Any:
    if forms.program is None:
        raise ValueError("there is no program of torch")
    return forms.program()
