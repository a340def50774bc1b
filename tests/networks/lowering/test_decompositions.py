"""Programs are decomposed as torch does it, in less time."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from chameleon_networks.importers.torch.lowering.decompositions import (
    DECOMPOSITIONS,
    with_decompositions,
)
from torch._decomp import _core_aten_decompositions_post_autograd
from torch.nn import functional

from .torch_networks import Of

FUNCTIONS = {
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "bilinear upsampling": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "einsum": lambda x: torch.einsum("abij,abkj->abik", x, x),
    "layer norm": lambda x: functional.layer_norm(x, x.shape[-2:]),
    "mish": functional.mish,
    "RMS norm": lambda x: functional.rms_norm(x, x.shape[-1:]),
    "silu": functional.silu,
    "variance": lambda x: torch.var_mean(x, dim=1),
}
"""Operators that torch preserves, that have decompositions of ours, or that are composite."""


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_programs_are_those_of_run_decompositions(
    function: Callable[..., Any],
):
    program = torch.export.export(Of(function), (torch.rand(1, 2, 3, 4),))
    whole = torch.export.default_decompositions()
    whole.update(DECOMPOSITIONS)
    expected = program.run_decompositions(whole)
    table = {**_core_aten_decompositions_post_autograd(), **DECOMPOSITIONS}

    made = with_decompositions(program, table)

    assert made.graph_module.code == expected.graph_module.code
    assert str(made.graph_signature) == str(expected.graph_signature)
