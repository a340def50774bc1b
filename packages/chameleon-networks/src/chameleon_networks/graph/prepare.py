"""A network made ready for tuning and compiling: no batch normalisation, one layout."""

from __future__ import annotations

from functools import partial
from typing import Any

from chameleon_core.errors import ConfigError

from chameleon_networks.graph.affine import with_folded_scales
from chameleon_networks.graph.computed_zero_points import with_known_zero_points
from chameleon_networks.graph.constants import fold_constants
from chameleon_networks.graph.layout_error import NEXT_STEP, LayoutError
from chameleon_networks.graph.lowering import lowered
from chameleon_networks.graph.matching_convolutions import channels_last_layouts
from chameleon_networks.graph.moves import without_moves
from chameleon_networks.graph.pads import with_folded_pads
from chameleon_networks.graph.quantized_constants import with_real_constants
from chameleon_networks.graph.quantized_layouts import with_steps_passed
from chameleon_networks.graph.quantized_moves import with_small_moves
from chameleon_networks.graph.quantized_steps import is_quantized
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.graph.squeezing import with_positive_axes
from chameleon_networks.graph.transposed import without_transposed

_LAYOUTS = ("NHWC", "NCHW")
"""Layouts of a whole graph: channels last and first, of one and three spatial axes as well."""


__all__ = ["LayoutError", "operators_in", "prepared"]


def prepared(module: Any, layout: str) -> Any:
    """The network as it is tuned and compiled.

    Batch normalisations, and what else scales and shifts channels, become part of the weights
    before them, padding with zeros part of the convolution behind it, transposed convolutions
    ordinary ones; everything that follows from constants alone is computed, and images get one
    layout through the whole graph, so that no layout change is left between convolutions.

    Args:
        module: an ``IRModule`` whose ``main`` is the network in NCHW, with constant weights.
        layout: ``NHWC`` or ``NCHW``.

    Raises:
        LayoutError: TVM cannot convert the network to the layout.
        ConfigError: an input's shape is open, or there is no such layout.
    """
    if layout not in _LAYOUTS:
        raise ConfigError(
            f"whole networks are not compiled in the layout {layout}",
            hint=f"Choose one of {', '.join(_LAYOUTS)}.",
        )
    for parameter in module["main"].params:
        _check_shape(parameter)
    passes = relax.transform
    small = [with_small_moves, passes.CanonicalizeBindings()] if is_quantized(module) else []
    try:
        folded = _sequence(
            module,
            lowered,
            *(_integers(passes) if small else []),
            passes.FoldBatchnormToConv2D(),
            passes.CanonicalizeBindings(),
            fold_constants,
            passes.DecomposeOpsForInference(),
            passes.CanonicalizeBindings(),
            fold_constants,
            with_folded_scales,
            with_folded_pads,
        )
        layouts = {
            name: one
            for name, one in channels_last_layouts().items()
            if name in operators_in(folded)
        }
        # It breaks on some networks of other operators, where it has nothing to convert.
        if layout == "NHWC" and layouts:
            folded = _sequence(
                folded,
                with_positive_axes,
                partial(with_steps_passed, change=passes.ConvertLayout(layouts)),
                passes.Normalize(),
                fold_constants,
                *small,
            )
        return _sequence(
            folded,
            passes.CanonicalizeBindings(),
            without_transposed,
            passes.CanonicalizeBindings(),
            without_moves,
            passes.CanonicalizeBindings(),
            *small,
            passes.DeadCodeElimination(),
        )
    except tvm.error.InternalError as error:
        raise LayoutError(
            f"TVM cannot convert the network to {layout}: {str(error).splitlines()[-1]}",
            hint=NEXT_STEP,
        ) from error


def _integers(passes: Any) -> list[Any]:
    """Passes that leave quantized constants to products of integers alone."""
    simplified = passes.CanonicalizeBindings(), fold_constants
    return [
        *simplified,
        with_small_moves,
        with_folded_pads,
        with_known_zero_points,
        *simplified,
        with_real_constants,
        *simplified,
    ]


def operators_in(module: Any) -> set[str]:
    """Names of the operators of a module's ``main``."""
    return {
        str(binding.value.op.name)
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.Op)
    }


def _check_shape(parameter: Any) -> None:
    """Make sure that an input's shape is known."""
    extents = getattr(getattr(parameter, "ty", None), "shape", None)
    if extents is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        known = [getattr(extent, "value", extent) for extent in extents or ()]
        shown = f"[{', '.join(map(str, known))}]" if known else "unknown"
        name = str(parameter.name)
        raise ConfigError(
            f"the shape of the network's input {name!r} is open: {shown}",
            hint=f"Fix it: beside `source` under `model` write `shapes: {{{name}: [...]}}`, or "
            "export a torch program without `dynamic_shapes`.",
        )


def _sequence(module: Any, *passes: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        for one in passes:
            module = one(module)
    return module
