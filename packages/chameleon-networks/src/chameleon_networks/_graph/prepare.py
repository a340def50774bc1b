"""Prepares a network for tuning and compilation: folds batch normalization, and sets one layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import numpy as np
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import INT8, MOST_ELEMENTS, STORAGE, UINT8, telling_line

from chameleon_networks._graph import quantization
from chameleon_networks._graph.constants import array_of, fold_constants
from chameleon_networks._graph.fold_scales import fold_scales, scale_batch_norms
from chameleon_networks._graph.legalize import legalize
from chameleon_networks._graph.matching_products import CONVOLUTION_RANKS, channels_last_layouts
from chameleon_networks._graph.merge_projections import merge_projections
from chameleon_networks._graph.propagate_quantization import propagate_quantization
from chameleon_networks._graph.propagate_transposes import propagate_transposes
from chameleon_networks._graph.quantization import DEQUANTIZE, QUANTIZE, QParams, is_call
from chameleon_networks._graph.relax_utils import (
    bindings_of,
    emit_like,
    mutate,
    operator_name,
    relax,
    shape_of,
    static_shape,
    tvm,
    values_of,
    with_args,
)
from chameleon_networks._graph.transposed_convolutions import (
    legalize_transposed_convolutions,
    rewrite_transposed_convolutions,
)
from chameleon_networks._graph.typed_operators import operands_of


class LayoutError(ConfigError):
    """A network cannot be converted to a layout, but perhaps to another one."""


LAYOUT_HINT = "Try `layout: NCHW` in the model's section."
"""The hint in errors about shapes and layouts."""


_ADD, _ASTYPE = "relax.add", "relax.astype"


def convert_quantized_layout(module: Any, change: Callable[[Any], Any]) -> Any:
    """Run a pass that changes layouts, with quantize and dequantize hidden from it."""
    hider = _QuantizationHider(module)
    hidden = mutate(module, hider)
    if not hider.steps:
        return change(module)
    converted = change(hidden)
    restorer = _QuantizationRestorer(converted, hider.steps)
    restored = mutate(converted, restorer)
    if restorer.restored != {*hider.steps}:
        lost = len(hider.steps) - len(restorer.restored)
        raise LayoutError(
            f"TVM lost {lost} of {len(hider.steps)} steps of quantization when it changed layouts",
            hint=LAYOUT_HINT,
        )
    return restored


@relax.expr_functor.mutator
class _QuantizationHider(relax.PyExprMutator):
    """Replaces quantize and dequantize by sums with constants that mark them."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.steps: dict[Any, tuple[str, QParams]] = {}
        """The hidden steps, by the constant that is added, which the module has nowhere else."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        for name in (QUANTIZE, DEQUANTIZE):
            step = quantization.qparams_of(call, name) if is_call(call, name) else None
            if step is None or not step.per_tensor or not isinstance(step.source, relax.Var):
                continue
            marker, source = relax.const(float(len(self.steps)), "float32"), step.source
            self.steps[marker] = name, step
            if name == QUANTIZE:
                return relax.op.astype(source + marker, step.dtype)
            return relax.op.astype(source, "float32") + marker
        return call


@relax.expr_functor.mutator
class _QuantizationRestorer(relax.PyExprMutator):
    """Replaces the sums of ``_QuantizationHider`` by quantize and dequantize."""

    def __init__(self, module: Any, steps: dict[Any, tuple[str, QParams]]) -> None:
        super().__init__(module)
        self.restored: set[Any] = set()
        self._steps = steps
        self._values: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        self._values[binding.var] = binding.value
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        before: Any = self._values.get(call.args[0]) if call.args else None
        if is_call(call, _ASTYPE):
            hidden = self._hidden_qparams(before)
            if hidden is not None and hidden[0] == QUANTIZE:
                self.restored.add(before.args[1])
                return hidden[1].quantize(self.builder_, self.visit_expr(before.args[0]))
        hidden = self._hidden_qparams(call)
        if hidden is not None and hidden[0] == DEQUANTIZE and is_call(before, _ASTYPE):
            self.restored.add(call.args[1])
            return hidden[1].dequantize(self.builder_, self.visit_expr(before.args[0]))
        return super().visit_call_(call)

    def _hidden_qparams(self, value: Any) -> tuple[str, QParams] | None:
        """The operator and parameters that a sum hides, or None."""
        if not is_call(value, _ADD) or not isinstance(value.args[1], tvm.ir.GenericConst):
            return None
        return self._steps.get(value.args[1])


_MIDDLE = -STORAGE[INT8].low
"""The zero point that kernels are compiled with, in the middle of uint8. Sums are small with it,
and so are their rounding errors in float32. It is also the difference of uint8 and int8."""


def make_zero_points_constant(module: Any) -> Any:
    """Compute integer products with a constant zero point, as kernels need, and correct them."""
    return mutate(module, _ZeroPointRewriter(module))


@relax.expr_functor.mutator
class _ZeroPointRewriter(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.matmul"):
            return call
        data, weights = (self._value(argument) for argument in call.args)
        weight_qparams = quantization.qparams_of(weights, DEQUANTIZE)
        if weight_qparams is None or not is_call(data, DEQUANTIZE) or not _is_computed(data):
            return call
        if not isinstance(weight_qparams.source, tvm.ir.GenericConst) or not _is_matrix(
            weight_qparams
        ):
            return call
        return self._rewrite_product(call, data, weight_qparams)

    def _value(self, variable: Any) -> Any:
        return self.lookup_binding(variable) if isinstance(variable, relax.Var) else None

    def _rewrite_product(self, call: Any, data: Any, weights: QParams) -> Any:
        emit, op = self.builder_.emit, relax.op
        numbers, scale, zero = data.args
        middle = relax.const(_MIDDLE, "int32")
        if str(numbers.ty.dtype) == INT8:
            numbers = emit(op.astype(op.astype(numbers, "int32") + middle, UINT8))
            zero = emit(op.astype(zero, "int32") + middle)
        sums = weights.dequantize_array(array_of(weights.source)).astype(np.float64).sum(axis=-2)
        shifted = emit(op.dequantize(numbers, relax.const(1.0), middle))
        product = emit(with_args(call, [shifted, call.args[1]]))
        difference = op.reshape(op.astype(zero, "float32"), []) - relax.const(float(_MIDDLE))
        product = emit(product - difference * relax.const(sums.astype(np.float32)))
        return product * emit(op.reshape(scale, []))


def _is_computed(call: Any) -> bool:
    """Whether 8-bit numbers are dequantized with a single zero point that the network computes."""
    numbers, scale, zero = call.args
    return (
        str(numbers.ty.dtype) in {INT8, UINT8}
        and str(call.ty.dtype) == "float32"
        and not isinstance(zero, tvm.ir.GenericConst)
        and all(np.prod(shape_of(parameter)) == 1 for parameter in (scale, zero))
    )


def _is_matrix(weights: QParams) -> bool:
    """Whether weights are one matrix, with one scale for all columns or one for each."""
    *_, axis = range(len(shape_of(weights.source)))
    return axis == 1 and (weights.per_tensor or weights.axis == axis)


def dequantize_constants(module: Any) -> Any:
    """Dequantize constants at compile time, except weights of int8 kernels, for later folding."""
    values = values_of(module["main"])
    products = {value for value in values.values() if operands_of(value, values) is not None}
    return mutate(module, _ConstantDequantizer(module, products))


@relax.expr_functor.mutator
class _ConstantDequantizer(relax.PyExprMutator):
    """Replaces dequantized constants; weights with other readers exist in both forms."""

    def __init__(self, module: Any, products: AbstractSet[Any]) -> None:
        super().__init__(module)
        self._products = products
        self._constants: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        constant = quantization.dequantized_constant(binding.value)
        if constant is not None and isinstance(binding.var, relax.DataflowVar):
            self._constants[binding.var] = relax.const(np.ascontiguousarray(constant), "float32")
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        weights = call.args[1] if call in self._products else None
        if weights is None:
            return super().visit_call_(call)
        data = self.visit_expr(call.args[0])
        return with_args(call, [data, super().visit_dataflow_var_(weights)])

    def visit_var_(self, variable: Any) -> Any:
        return self.visit_dataflow_var_(variable)

    def visit_dataflow_var_(self, variable: Any) -> Any:
        constant = self._constants.get(variable)
        return super().visit_dataflow_var_(variable) if constant is None else constant


_NON_SPATIAL_AXES = 2
"""Number of axes before the spatial ones: batch and channels."""


def fold_pads(module: Any) -> Any:
    """Make zero padding before convolutions a part of the convolutions, to save a copy."""
    return mutate(module, _PadFolder(module))


@relax.expr_functor.mutator
class _PadFolder(relax.PyExprMutator):
    """Notes which variables are padded, and by how much."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._padded: dict[Any, tuple[Any, list[int]]] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = binding.value
        name = operator_name(value)
        folded = None
        if name == "relax.nn.pad" and str(value.attrs.pad_mode) == "constant":
            widths = [int(width) for width in value.attrs.pad_width]
            if float(value.attrs.pad_value) == 0.0 and min(widths) >= 0:
                self._padded[binding.var] = value.args[0], widths
        elif name in CONVOLUTION_RANKS and value.args[0] in self._padded:
            folded = self._folded(value, name)
        if folded is None:
            super().visit_var_binding_(binding)
        else:
            self.set_var_remap(binding.var, emit_like(self.builder_, folded, binding.var))

    def _folded(self, call: Any, name: str) -> Any | None:
        """The convolution with more padding, or None if batch or channels are padded."""
        source, widths = self._padded[call.args[0]]
        axes = CONVOLUTION_RANKS[name]
        if any(widths[: 2 * _NON_SPATIAL_AXES]) or len(widths) != 2 * (_NON_SPATIAL_AXES + axes):
            return None
        before, after = widths[2 * _NON_SPATIAL_AXES :: 2], widths[2 * _NON_SPATIAL_AXES + 1 :: 2]
        inner_padding = [int(width) for width in call.attrs.padding]
        if len(inner_padding) != 2 * axes:
            inner_padding *= 2
        padding = [mine + more for mine, more in zip(inner_padding, [*before, *after], strict=True)]
        arguments = [self.visit_expr(argument) for argument in (source, call.args[1])]
        return with_args(call, arguments, padding=padding)


_LAYOUTS = ("NHWC", "NCHW")
"""Layouts of a whole graph: channels last, or first. They also mean one or three spatial axes."""


def prepare_module(module: Any, layout: str) -> Any:
    """Simplify a network for tuning, and convert it to the layout ``NHWC`` or ``NCHW``."""
    if layout not in _LAYOUTS:
        raise ConfigError(
            f"whole networks are not compiled in the layout {layout}",
            hint=f"Choose one of {', '.join(_LAYOUTS)}.",
        )
    for parameter in module["main"].params:
        _check_shape(parameter)
    _check_elements(module["main"])
    passes = relax.transform
    quantized_passes = (
        [propagate_quantization, passes.CanonicalizeBindings()]
        if quantization.is_quantized(module)
        else []
    )
    try:
        folded = _run_passes(
            module,
            legalize,
            *(_quantization_passes(passes) if quantized_passes else []),
            passes.FoldBatchnormToConv2D(),
            scale_batch_norms,
            passes.DecomposeOpsForInference(),
            passes.CanonicalizeBindings(),
            fold_constants,
            fold_scales,
            fold_pads,
            legalize_transposed_convolutions,
        )
        layouts = {
            name: orders
            for name, orders in channels_last_layouts().items()
            if name in operator_names(folded)
        }
        # ``ConvertLayout`` fails on some networks without convolutions.
        if layout == "NHWC" and layouts:
            folded = _run_passes(
                folded,
                partial(convert_quantized_layout, change=passes.ConvertLayout(layouts)),
                passes.Normalize(),
                fold_constants,
                *quantized_passes,
            )
        return _run_passes(
            folded,
            passes.CanonicalizeBindings(),
            rewrite_transposed_convolutions,
            passes.CanonicalizeBindings(),
            propagate_transposes,
            passes.CanonicalizeBindings(),
            *quantized_passes,
            passes.DeadCodeElimination(),
            merge_projections,
        )
    except tvm.error.InternalError as error:
        raise LayoutError(
            f"TVM cannot convert the network to {layout}: {telling_line(error)}", hint=LAYOUT_HINT
        ) from error


def _quantization_passes(passes: Any) -> list[Any]:
    """Passes after which only integer products read quantized constants."""
    simplified = passes.CanonicalizeBindings(), fold_constants
    return [
        *simplified,
        propagate_quantization,
        fold_pads,
        make_zero_points_constant,
        *simplified,
        dequantize_constants,
        *simplified,
    ]


def operator_names(module: Any) -> set[str]:
    """Names of the operators of a module's ``main``."""
    return {operator_name(binding.value) for binding in bindings_of(module["main"])} - {""}


def _check_shape(parameter: Any) -> None:
    """Check that the shape of an input is known."""
    kind = getattr(parameter, "ty", None)
    if static_shape(kind) is None:
        extents = [
            getattr(extent, "value", extent) for extent in getattr(kind, "shape", None) or ()
        ]
        shape_text = f"[{', '.join(map(str, extents))}]" if extents else "unknown"
        name = str(parameter.name)
        raise ConfigError(
            f"the shape of the network's input {name!r} is open: {shape_text}",
            hint=f"Fix it: beside `source` under `model` write `shapes: {{{name}: [...]}}`, or "
            "export a torch program without `dynamic_shapes`.",
        )


def _check_elements(function: Any) -> None:
    """Check that kernels can index all tensors of a network."""
    values = dict.fromkeys(function.params, "an input of the network")
    for binding in bindings_of(function):
        operator = operator_name(binding.value).removeprefix("relax.")
        values[binding.var] = f"the result of {operator}"
    for variable, owner in values.items():
        shape = static_shape(variable.ty)
        if shape is not None and math.prod(shape) > MOST_ELEMENTS:
            raise ConfigError(
                f"{owner} has the shape {list(shape)}, which is {math.prod(shape)} elements",
                hint=f"Kernels index at most {MOST_ELEMENTS}: make the batch or the input smaller.",
            )


def _run_passes(module: Any, *passes: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        for module_pass in passes:
            module = module_pass(module)
    return module
