"""Programs are decomposed as torch does it, in less time."""

import pytest
import torch
from chameleon_networks._importers.torch.lowering import decompositions
from marks import full
from torch.nn import functional

from .torch_networks import Of


def operators(x):
    """Operators that torch preserves, that have decompositions of ours, or that are composite."""
    return (
        functional.scaled_dot_product_attention(x, x, x),
        functional.interpolate(x, scale_factor=2, mode="bilinear"),
        torch.einsum("abij,abkj->abik", x, x),
        functional.layer_norm(x, x.shape[-2:]),
        functional.mish(x),
        functional.rms_norm(x, x.shape[-1:]),
        functional.silu(x),
        *torch.var_mean(x, dim=1),
    )


@pytest.mark.parametrize("private", [True, full(False)], ids=["private functions", "none"])
def test_programs_are_those_of_run_decompositions(monkeypatch, *, private):
    program = torch.export.export(Of(operators), (torch.rand(1, 2, 3, 4),))
    whole = torch.export.default_decompositions()
    whole.update(decompositions.DECOMPOSITIONS)
    expected = program.run_decompositions(whole)
    if private:
        assert decompositions.core_decompositions is not None
    else:
        monkeypatch.setattr(decompositions, "core_decompositions", None)

    made = decompositions.run_decompositions(program, decompositions.decomposition_table())

    # A line for each operator.
    assert made.graph_module.code.split("\n") == expected.graph_module.code.split("\n")
    assert str(made.graph_signature) == str(expected.graph_signature)
