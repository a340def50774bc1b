"""Moves of data that need not happen: permutations and reshapes removed from a graph."""

from __future__ import annotations

from typing import Any

from chameleon_core.errors import ConfigError

from chameleon_tvm.graph.relaxed import relax, tvm

ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power"),
        *("clip", "exp", "log", "sqrt", "rsqrt", "abs", "negative", "sigmoid", "tanh", "erf"),
        *("astype", "nn.relu", "nn.relu6", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.leakyrelu"),
    )
)
_RESHAPING = frozenset({"relax.reshape", "relax.broadcast_to", "relax.expand_dims"})


def without_moves(module: Any) -> Any:
    """The module with fewer permutations and reshapes.

    Element-wise operators are computed before the permutations of their inputs, so that two
    permutations which undo each other meet and vanish; reshapes of reshapes become one.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
    """
    mover = _Mover(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mover.builder_.update_func(variable, mover.visit_expr(function))
    return relax.transform.DeadCodeElimination()(mover.builder_.get())


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):
    """Keeps for every variable that is a permutation or reshape what it is one of."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._permuted: dict[Any, tuple[Any, tuple[int, ...]]] = {}
        self._reshaped: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        if not isinstance(binding.var, relax.DataflowVar):
            super().visit_var_binding_(binding)
            return
        value = self.visit_expr(binding.value)
        emitted = self._moved(value) if _is_operator(value) else None
        if emitted is None:
            emitted = self.builder_.emit(value)
        self.set_var_remap(binding.var, emitted)

    def _moved(self, call: Any) -> Any | None:
        name = str(call.op.name)
        if name == "relax.permute_dims":
            return self._permute(call.args[0], axes_of(call))
        if name in _RESHAPING:
            return self._reshape(call.args[0], shape_of(call))
        if name in ELEMENTWISE:
            return self._elementwise(call)
        return None

    def _permute(self, source: Any, axes: tuple[int, ...]) -> Any:
        if source in self._permuted:
            source, before = self._permuted[source]
            axes = tuple(before[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            return source
        made = self.builder_.emit(relax.op.permute_dims(source, list(axes)))
        self._permuted[made] = (source, axes)
        return made

    def _reshape(self, source: Any, shape: tuple[int, ...]) -> Any | None:
        if _size(shape_of(source)) != _size(shape):
            return None  # a broadcast that repeats numbers
        source = self._reshaped.get(source, source)
        if shape_of(source) == shape:
            return source
        made = self.builder_.emit(relax.op.reshape(source, list(shape)))
        self._reshaped[made] = source
        return made

    def _elementwise(self, call: Any) -> Any | None:
        """The operator on unpermuted inputs, permuted; None where they differ."""
        shape = shape_of(call)
        found = None
        arguments = []
        for argument in call.args:
            if not _is_tensor(argument) or not shape_of(argument):
                arguments.append(argument)
                continue
            known = self._permuted.get(argument)
            if known is None or shape_of(argument) != shape or (found and known[1] != found):
                return None
            found = known[1]
            arguments.append(known[0])
        if found is None:
            return None
        made = self.builder_.emit(relax.Call(call.op, arguments, call.attrs, call.ty_args))
        return self._permute(made, found)


def shape_of(expression: Any) -> tuple[int, ...]:
    """The shape of a tensor.

    Raises:
        ConfigError: not every extent is known.
    """
    if not _is_tensor(expression):
        raise ConfigError(
            f"the network has a tensor of unknown shape: {getattr(expression, 'ty', expression)}",
            hint="Fix every input's shape; dynamic shapes are not supported.",
        )
    return tuple(int(extent) for extent in expression.ty.shape)


def axes_of(call: Any) -> tuple[int, ...]:
    """The order that a ``permute_dims`` puts its input's axes in."""
    count = len(shape_of(call))
    axes = call.attrs.axes
    return tuple(range(count))[::-1] if axes is None else tuple(int(axis) % count for axis in axes)


def _is_operator(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and _is_tensor(value)


def _is_tensor(expression: Any) -> bool:
    kind = getattr(expression, "ty", None)
    shape = getattr(kind, "shape", None)
    return shape is not None and all(isinstance(extent, tvm.tirx.IntImm) for extent in shape)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
