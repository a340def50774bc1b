"""The torch module of a transformed convolution.

The code of delivered networks contains this module's class.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from chameleon_transforms._nest.domain import Nest
from chameleon_transforms._nest.program import Program


class TransformedConvolution(nn.Module):
    """A torch module of stages of convolutions, which replaces one convolution of a network.

    Args:
        stages: For each stage, its parts, which compute disjoint outputs. A part is a mapping:
            ``inputs`` and ``rows`` are the input channels and input rows that it reads, ``places``
            its output rows. Each of the three is a pair (first, last + 1). A part also has ``pads``
            (left, right, top, bottom) and ``convolution``, the arguments of ``nn.Conv2d``. Parts of
            equal rows follow each other in the order of their output channels.
        bias: Number of channels of the last stage's bias; 0 for no bias.
    """

    def __init__(self, stages: list[list[dict[str, Any]]], bias: int = 0) -> None:
        super().__init__()
        self.plan = stages
        self.convolutions = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(**part["convolution"], bias=False) for part in stage)
            for stage in stages
        )
        self.bias = nn.Parameter(torch.zeros(bias)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Compute the transformed convolution for images (n, channels, rows, columns)."""
        for stage, convolutions in zip(self.plan, self.convolutions, strict=True):
            slabs: dict[tuple[int, int], list[Tensor]] = {}
            for part, convolution in zip(stage, convolutions, strict=True):
                (c0, c1), (r0, r1) = part["inputs"], part["rows"]
                read = x if (c0, c1) == (0, x.shape[1]) else x[:, c0:c1]
                read = read if (r0, r1) == (0, x.shape[2]) else read[:, :, r0:r1]
                if any(part["pads"]):
                    read = nn.functional.pad(read, part["pads"])
                slabs.setdefault(part["places"], []).append(convolution(read))
            rows = [slab[0] if len(slab) == 1 else torch.cat(slab, 1) for slab in slabs.values()]
            x = rows[0] if len(rows) == 1 else torch.cat(rows, 2)
        return x if self.bias is None else x + self.bias[None, :, None, None]


def plan_of(program: Program) -> list[list[dict[str, Any]]]:
    """A program as the argument ``stages`` of ``TransformedConvolution``."""
    return [[_part(nest) for nest in stage.in_order] for stage in program.stages]


def _part(nest: Nest) -> dict[str, Any]:
    top, left, bottom, right = nest.pads
    read = nest.read_rows
    # Equal padding on both sides is the convolution's own, which need not copy its input.
    even = top == bottom and left == right
    return {
        "inputs": (nest.inputs.start, nest.inputs.stop),
        "rows": (read.start, read.stop),
        "places": (nest.rows.start, nest.rows.stop),
        "pads": (0, 0, 0, 0) if even else (left, right, top, bottom),
        "convolution": {
            "in_channels": nest.inputs.length,
            "out_channels": nest.outputs.length,
            "kernel_size": nest.kernel,
            "stride": nest.stride,
            "padding": (top, left) if even else 0,
            "dilation": nest.dilation,
            "groups": nest.groups,
        },
    }


def module_of(program: Program) -> TransformedConvolution:
    """The trainable module of a program, with torch's own initial weights."""
    bias = program.stages[-1].output[0] if program.bias else 0
    return TransformedConvolution(plan_of(program), bias)
