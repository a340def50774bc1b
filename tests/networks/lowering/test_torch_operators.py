"""Operators of torch give torch's numbers, compiled without a tuner; the rest is refused."""

import re

import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.torch.lowering.importer import CONVERTERS, torch_graph
from marks import full

from .networks import batches, wrong
from .torch_cases import FAMILIES, REFUSED


@pytest.mark.full
@pytest.mark.parametrize("cases", batches(FAMILIES))
def test_operators_give_the_frameworks_numbers(cases):
    # Several kinds of images in one network have no common layout to be converted to.
    assert wrong(cases, layout="NCHW") == {}


@pytest.mark.parametrize(
    "names",
    [
        full(("convolutions", "conv2d grouped", "conv2d reflect padding", "transposed 1d")),
        full(("convolutions", "transposed 2d uncovered")),
        full(("images", "conv upsample conv", "global mean")),
        full(("normalisations", "conv group norm")),
        ("normalisations", "conv1d axes from the end"),
    ],
)
def test_networks_of_images_are_converted(names):
    family, *chosen = names
    assert wrong({name: FAMILIES[family][name] for name in chosen}, layout="NHWC") == {}


@pytest.mark.parametrize("operator", list(REFUSED))
def test_the_others_are_refused_with_their_place(operator):
    network, inputs = REFUSED[operator]()
    outer = torch.nn.Sequential(torch.nn.Identity(), network).eval()
    with pytest.raises(ConfigError, match=re.escape(operator)) as caught:
        torch_graph(torch.export.export(outer, inputs))
    assert "in module 1" in str(caught.value)
    assert re.search(r"\(\w+\.py:\d+: `.*`\)", str(caught.value))
    assert "Write that part" in (caught.value.hint or "")


def test_a_result_of_another_shape_than_torch_gives_is_refused(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "relu.default", lambda call: relax.op.sum(call.value(0)))
    program = torch.export.export(torch.nn.ReLU(), (torch.rand(2, 3),))
    with pytest.raises(ConfigError, match=r"operator relu .* another shape"):
        torch_graph(program)
