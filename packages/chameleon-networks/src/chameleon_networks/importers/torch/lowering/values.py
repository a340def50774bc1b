"""The call that a converter of torch's operators converts, and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from chameleon_networks.graph.relaxed import relax


@attrs.frozen(eq=False)
class Call:
    """A call of an operator in a program of torch.

    Attributes:
        node: of ``torch.fx``.
        importer: TVM's, which knows what came before.
    """

    node: Any
    importer: Any

    @property
    def dtype(self) -> str:
        """The type of the result; none of a call that gives several."""
        return str(self.node.meta["val"].dtype).removeprefix("torch.")

    @property
    def shape(self) -> list[int]:
        """The shape of the result."""
        return [int(extent) for extent in self.node.meta["val"].shape]

    def emit(self, value: Any) -> Any:
        """A variable of an expression."""
        return self.importer.block_builder.emit(value)

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """An argument that may be given by place or by name."""
        args = self.node.args
        return args[place] if len(args) > place else self.node.kwargs.get(name, default)

    def value(self, place: int) -> Any:
        """The value of a tensor among the arguments."""
        return self.importer.env[self.node.args[place]]

    def tensor(self, argument: Any, dtype: str | None = None) -> Any:
        """An argument as a value in Relax, converted to a type if one is given.

        Args:
            argument: a node, or a number, for which a type is needed.
            dtype: of the result.
        """
        if isinstance(argument, bool | int | float):
            return relax.const(argument, dtype)
        value = self.importer.env[argument]
        if dtype is not None and str(value.ty.dtype) != dtype:
            value = self.emit(relax.op.astype(value, dtype))
        return value

    def operands(self, count: int, dtype: str | None = None) -> list[Any]:
        """The first arguments, in the type of the result or in another."""
        return [self.tensor(one, dtype or self.dtype) for one in self.node.args[:count]]


Converter = Callable[[Call], Any]
"""Emits what a call computes, and returns its value."""


def extents(value: Any) -> list[int]:
    """The shape of a value."""
    return [int(extent) for extent in value.ty.shape]
