"""Padding with zeros as part of the convolution behind it.

Frameworks whose convolutions pad all sides alike write uneven padding as an operator of its own:
a copy of the image that the convolution's kernel makes anyway, or does without.
"""

from __future__ import annotations

from typing import Any

from chameleon_networks.graph.relaxed import relax, tvm

_SPATIAL_AXES = {"relax.nn.conv1d": 1, "relax.nn.conv2d": 2, "relax.nn.conv3d": 3}
_LEADING = 2
"""Axes before the spatial ones: batch and channels."""


def with_folded_pads(module: Any) -> Any:
    """The module with constant padding by zeros moved into the convolutions that read it.

    Args:
        module: an ``IRModule`` whose ``main`` is a network with channels first.
    """
    folder = _PadFolder(module)
    variable = module.get_global_var("main")
    folder.builder_.update_func(variable, folder.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(folder.builder_.get())


@relax.expr_functor.mutator
class _PadFolder(relax.PyExprMutator):
    """Remembers what is padded by how much."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._padded: dict[Any, tuple[Any, list[int]]] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
            name = str(value.op.name)
            if name == "relax.nn.pad" and str(value.attrs.pad_mode) == "constant":
                widths = [int(width) for width in value.attrs.pad_width]
                if float(value.attrs.pad_value) == 0.0 and min(widths) >= 0:
                    self._padded[binding.var] = value.args[0], widths
            elif name in _SPATIAL_AXES and value.args[0] in self._padded:
                folded = self._folded(value, name)
                if folded is not None:
                    inner = isinstance(binding.var, relax.DataflowVar)
                    emit = self.builder_.emit if inner else self.builder_.emit_output
                    self.set_var_remap(binding.var, emit(folded))
                    return
        super().visit_var_binding_(binding)

    def _folded(self, call: Any, name: str) -> Any | None:
        """The convolution of what was padded, with its padding; None where channels were padded."""
        source, widths = self._padded[call.args[0]]
        axes = _SPATIAL_AXES[name]
        if any(widths[: 2 * _LEADING]) or len(widths) != 2 * (_LEADING + axes):
            return None
        before, after = widths[2 * _LEADING :: 2], widths[2 * _LEADING + 1 :: 2]
        at = call.attrs
        own = [int(width) for width in at.padding]
        own = own if len(own) == 2 * axes else [*own, *own]
        padding = [mine + more for mine, more in zip(own, [*before, *after], strict=True)]
        operator = getattr(relax.op.nn, name.removeprefix("relax.nn."))
        return operator(
            self.visit_expr(source),
            self.visit_expr(call.args[1]),
            strides=list(at.strides),
            padding=padding,
            dilation=list(at.dilation),
            groups=int(at.groups),
            data_layout=str(at.data_layout),
            kernel_layout=str(at.kernel_layout),
            out_layout=str(at.out_layout),
            out_dtype=str(at.out_dtype) if at.out_dtype else None,
        )
