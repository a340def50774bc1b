"""The epilogue of a template: bias, residual and activation of sums in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm import emit
from chameleon_tvm.arrays import contiguous
from chameleon_tvm.emit import Buffer, Expr
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.specs import FusedSpec


class VectorEpilogue:
    """Writes the steps between the sums and the output of an operator, as TensorIR.

    The steps add bias and residual, and apply the activation.

    Args:
        spec: The operator's arguments; None for an operator without an epilogue.
        channels: Number of elements of the bias, padding included.
        shape: Shape of the output and of the residual.

    Attributes:
        bias: The function's parameter for the bias, or None.
        residual: The function's parameter for the residual, or None.
        out_type: Dtype of the output.
    """

    out_type: str = "float32"

    def __init__(self, spec: FusedSpec | None, channels: int, shape: Sequence[int]) -> None:
        self.activation = "none" if spec is None else spec.activation
        self.bias: Buffer | None = None
        self.residual: Buffer | None = None
        if spec is not None and spec.bias:
            self.bias = emit.buffer("bias", (channels,))
        if spec is not None and spec.residual:
            self.residual = emit.buffer("residual", shape)

    @property
    def parameters(self) -> list[Buffer]:
        """The function's parameters for the epilogue, in order."""
        return [buffer for buffer in (self.bias, self.residual) if buffer is not None]

    @property
    def zero_point(self) -> Expr | None:
        """The zero point of the data in float32; None if the data have none."""
        return None

    def whole(self, sums: Expr, channel: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        """The outputs of several neighbouring channels, as a vector.

        Args:
            sums: The sums of these channels, a vector.
            channel: The first of these channels.
            index: Index of the first of these outputs in the output.
            lanes: Number of channels.
        """
        return self.last(self.biased(sums, channel, lanes), index, lanes)

    def biased(self, sums: Expr, channel: Expr, lanes: int) -> Expr:
        """The sums of ``lanes`` channels from ``channel``, with their bias added."""
        return sums if self.bias is None else sums + emit.load(self.bias, [channel], lanes)

    def last(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        """Add the residual to biased sums, and apply the activation."""
        if self.residual is not None:
            sums = sums + emit.load(self.residual, index, lanes)
        return activate(sums, self.activation)


def pack_bias(bias: NDArray[Any], groups: int, channels: int) -> NDArray[Any]:
    """Pad the channels of each group in a bias; the result has shape (groups * channels,).

    Args:
        bias: The bias of all groups.
        groups: Number of groups.
        channels: Number of channels of a group, padding included.
    """
    grouped = bias.reshape(groups, -1)
    padded = np.pad(grouped, ((0, 0), (0, channels - grouped.shape[1])))
    return contiguous(padded).reshape(-1)
