"""Programs are decomposed as torch does it, in less time."""

import pytest
import torch
from chameleon_networks.importers.torch.lowering import decompositions
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


@pytest.mark.parametrize("private", [True, False], ids=["private functions", "none"])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_programs_are_those_of_run_decompositions(function, monkeypatch, *, private):
    program = torch.export.export(Of(function), (torch.rand(1, 2, 3, 4),))
    whole = torch.export.default_decompositions()
    whole.update(decompositions.DECOMPOSITIONS)
    expected = program.run_decompositions(whole)
    if private:
        assert decompositions.core_decompositions is not None
    else:
        monkeypatch.setattr(decompositions, "core_decompositions", None)

    made = decompositions.with_decompositions(program, decompositions.decomposition_table())

    assert made.graph_module.code == expected.graph_module.code
    assert str(made.graph_signature) == str(expected.graph_signature)
