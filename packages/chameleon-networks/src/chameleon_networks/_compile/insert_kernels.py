"""Replaces each fusion group of a graph by a call of its tuned kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from chameleon_tvm.api import symbol_of, with_shapes
from numpy.typing import NDArray

from chameleon_networks._compile.default_schedules import TASK_ATTRIBUTE
from chameleon_networks._compile.kernels import OperatorKernel
from chameleon_networks._graph.constants import array_of, constant_of
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import (
    PLAIN_LOOPS,
    emit_like,
    in_block,
    mutate,
    relax,
    shape_of,
    tvm,
)

_OPAQUE = 8
"""TVM's ``OpPatternKind`` of functions that are never fused."""


def insert_kernels(
    module: Any,
    fusions: Sequence[FusionGroup],
    kernel_of: Callable[[FusionGroup], OperatorKernel | None],
    *,
    reshape: bool = False,
    hook_input: Callable[[FusionGroup, int, Any], Any] | None = None,
) -> Any:
    """Replace fusion groups of a network by calls of kernels."""
    # With ``hook_input``, which may replace inputs, constants become parameters of ``main``.
    kernels = {fusion.last: (fusion, kernel_of(fusion)) for fusion in fusions}
    replaced = {last: pair for last, pair in kernels.items() if pair[1] is not None}
    return mutate(module, _KernelInserter(module, replaced, reshape=reshape, hook_input=hook_input))


@relax.expr_functor.mutator
class _KernelInserter(relax.PyExprMutator):
    """Replaces the last operator of each fusion group by a call of the kernel."""

    # The residual may be defined after the first operator.

    def __init__(
        self,
        module: Any,
        replaced: dict[Any, tuple[FusionGroup, Any]],
        *,
        reshape: bool,
        hook_input: Callable[[FusionGroup, int, Any], Any] | None,
    ) -> None:
        super().__init__(module)
        self._replaced = replaced
        self._reshape = reshape
        self._hook_input = hook_input
        self._parameters: list[Any] = []
        self._functions: dict[Any, Any] = {}

    def visit_function_(self, function: Any) -> Any:
        main = super().visit_function_(function)
        parameters = [*main.params, *self._parameters]
        return relax.Function(parameters, main.body, main.ret_ty, main.is_pure, main.attrs)

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var not in self._replaced:
            super().visit_var_binding_(binding)
            return
        fusion, kernel = self._replaced[binding.var]
        inputs = iter(enumerate(fusion.inputs))
        arguments = [
            self._input(fusion, *next(inputs)) if constant is None else self._constant(constant)
            for constant in kernel.arguments
        ]
        shape = shape_of(binding.var)
        if self._reshape:
            *inside, out = [[int(e) for e in buffer.shape] for buffer in kernel.function.params]
            arguments = [
                argument if list(shape_of(argument)) == wanted else self._reshaped(argument, wanted)
                for argument, wanted in zip(arguments, inside, strict=True)
            ]
        else:
            out = list(shape)
        call = relax.call_tir(
            self._function(kernel, arguments, out),
            arguments,
            relax.TensorType(out, str(binding.var.ty.dtype)),
        )
        if out != list(shape):
            call = relax.op.reshape(self.builder_.emit(call), list(shape))
        self.set_var_remap(binding.var, emit_like(self.builder_, call, binding.var))

    def _input(self, fusion: FusionGroup, number: int, tensor: Any) -> Any:
        argument = self.visit_expr(tensor)
        # Data may be constant, such as a recurrent layer's initial state.
        if self._hook_input is not None and not isinstance(argument, tvm.ir.GenericConst):
            argument = self._hook_input(fusion, number, argument)
        # An input may be an expression that the graph does not have yet.
        return self.builder_.emit(argument) if isinstance(argument, relax.Call) else argument

    def _constant(self, array: NDArray[Any]) -> Any:
        constant = constant_of(np.ascontiguousarray(array))
        if self._hook_input is None:
            return constant
        self._parameters.append(relax.Var(f"constant_{len(self._parameters)}", constant.ty))
        return self._parameters[-1]

    def _reshaped(self, argument: Any, shape: Sequence[int]) -> Any:
        if isinstance(argument, tvm.ir.GenericConst):
            return relax.const(array_of(argument).reshape(shape))
        return self.builder_.emit(relax.op.reshape(argument, list(shape)))

    def _function(
        self, kernel: OperatorKernel, arguments: Sequence[Any], out: Sequence[int]
    ) -> Any:
        """The kernel's function in the module, one for each combination of shapes and dtypes."""
        shapes = (*(shape_of(argument) for argument in arguments), tuple(out))
        # An int8 kernel writes int8 or float32, depending on its readers.
        kinds = tuple(str(parameter.dtype) for parameter in kernel.function.params)
        key = kernel.task, shapes, kinds
        if key not in self._functions:
            function = _with_shapes(kernel.function, shapes).without_attr("global_symbol")
            function = function.with_attr("op_pattern", _OPAQUE).with_attr(
                TASK_ATTRIBUTE, kernel.task
            )
            if kernel.plain_loops:
                function = in_block(function).with_attr(PLAIN_LOOPS, 1)
            variable = self.builder_.add_func(function, symbol_of(kernel.task))
            self._functions[key] = variable
        return self._functions[key]


def _with_shapes(function: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """A function whose parameters have the shapes of the graph's arrays."""
    names = [str(parameter.name) for parameter in function.params]
    shaped = with_shapes(function, dict(zip(names, shapes, strict=True)))
    return shaped.with_attrs(dict(function.attrs))
