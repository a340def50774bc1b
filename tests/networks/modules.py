"""Relax modules of a few operators, and what they compute by TVM's own way."""

import numpy as np
from chameleon_networks._graph.relax_utils import bindings_of, operator_name, relax, tvm
from chameleon_networks._quantize.data_flow import TensorFormat
from chameleon_tvm._types import STORAGE


def module_of(build, *inputs):
    """A module whose main computes ``build(emit, *inputs)``, one value or a tuple of several.

    Args:
        build: called in a block.
        inputs: shapes of float32, or each with a type.
    """
    kinds = [kind if isinstance(kind[-1], str) else (kind, "float32") for kind in inputs]
    variables = [
        relax.Var(f"x{number}", relax.TensorType(list(shape), dtype))
        for number, (shape, dtype) in enumerate(kinds)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            value = build(builder.emit, *variables)
            out = builder.emit_output(relax.Tuple(value) if isinstance(value, tuple) else value)
        builder.emit_func_output(out)
    return builder.get()


def in_eight_bits(affine, values):
    """Numbers as a tensor of eight bits with this range holds them."""
    qparams = TensorFormat(storage=STORAGE["uint8"], affine=affine).qparams(None)
    return qparams.dequantize_array(qparams.quantize_array(values))


def operators_of(module):
    """Names of the operators that main calls, in order, without ``relax.``."""
    names = (operator_name(binding.value) for binding in bindings_of(module["main"]))
    return [name.removeprefix("relax.") for name in names if name]


def expected(module, *inputs):
    """What the module computes by TVM's own way, in the virtual machine."""
    # Code that runs once is not worth optimising: that takes longer than all the rest.
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    executable = relax.build(relax.get_pipeline("zero")(module), target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]


def convolved(data, weights, groups=1):
    """A convolution of images in NCHW with padding 1 and taps 3x3, in float64."""
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    batch, channels, *spatial = windows.shape[:4]
    windows = windows.reshape(batch, groups, channels // groups, *spatial, 3, 3)
    filters = weights.astype(np.float64).reshape(groups, -1, *weights.shape[1:])
    return np.einsum("bgchwxy,gocxy->bgohw", windows, filters).reshape(batch, -1, *spatial)
