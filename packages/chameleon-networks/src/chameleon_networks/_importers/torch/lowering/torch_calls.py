"""The call of a torch operator that a converter converts, and the call's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from chameleon_networks._graph.relax_utils import relax


@attrs.frozen(eq=False)
class TorchCall:
    """A call of an operator in a torch program, as a converter to Relax reads it.

    Attributes:
        node: The ``torch.fx`` node.
        importer: TVM's importer, which holds the values of earlier nodes.
    """

    node: Any
    importer: Any

    @property
    def dtype(self) -> str:
        """The dtype of the torch operator's result, for operators with a single result."""
        return str(self.node.meta["val"].dtype).removeprefix("torch.")

    @property
    def shape(self) -> list[int]:
        """The shape of the result."""
        return [int(extent) for extent in self.node.meta["val"].shape]

    def emit(self, value: Any) -> Any:
        """Bind an expression to a variable, and return the variable."""
        return self.importer.block_builder.emit(value)

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument that the call passes by position or by name."""
        args = self.node.args
        return args[position] if len(args) > position else self.node.kwargs.get(name, default)

    def value(self, position: int) -> Any:
        """The Relax value of the tensor argument at a position."""
        return self.importer.env[self.node.args[position]]

    def tensor(self, argument: Any, dtype: str | None = None) -> Any:
        """An argument as a Relax value, converted to a dtype if ``dtype`` is not None."""
        if isinstance(argument, int) and dtype is not None and "int" in dtype:
            return relax.const(np.array(argument).astype(dtype), dtype)  # it wraps
        if isinstance(argument, bool | int | float):
            return relax.const(argument, dtype)
        value = self.importer.env[argument]
        if dtype is not None and str(value.ty.dtype) != dtype:
            value = self.emit(relax.op.astype(value, dtype))
        return value

    def operands(self, count: int, dtype: str | None = None) -> list[Any]:
        """The first arguments of the call as Relax values, such as the operands of an addition."""
        return [
            self.tensor(argument_value, dtype or self.dtype)
            for argument_value in self.node.args[:count]
        ]


Converter = Callable[[TorchCall], Any]
"""A function that emits the operators of a call, and returns the call's value."""


def extents(value: Any) -> list[int]:
    """The shape of a value."""
    return [int(extent) for extent in value.ty.shape]
