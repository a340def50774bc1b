"""Loop nests and what transforms make of them."""

import numpy as np
import pytest
import torch
from chameleon_transforms._nest.modules import module_of
from chameleon_transforms._nest.program import single_nest
from chameleon_transforms._nest.tasks import specs_of
from chameleon_transforms._network.space import UNCHANGED, variants
from hypothesis import given
from hypothesis import strategies as st
from torch import nn


def dense(channels=16, outputs=16, kernel=3, stride=1, size=8):
    pads = (kernel // 2,) * 4
    return single_nest(
        channels, outputs, (kernel, kernel), (stride, stride), pads, (1, 1), size=(size, size)
    )


def test_a_whole_convolution_is_torch_s():
    program = single_nest(
        4, 6, (3, 2), (2, 1), (1, 0, 1, 0), (1, 2), size=(9, 8), groups=2, bias=True
    )
    module = module_of(program)
    torchs = nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), groups=2)
    with torch.no_grad():
        module.convolutions[0][0].weight.copy_(torchs.weight)
        module.bias.copy_(torchs.bias)
        x = torch.randn(2, 4, 9, 8)
        assert torch.allclose(module(x), torchs(x), atol=1e-5)
    assert program.parameters == sum(parameter.numel() for parameter in torchs.parameters())
    assert module(x).shape[1:] == program.stages[-1].output


@pytest.mark.parametrize(("stride", "size", "parts"), [(1, 8, 2), (2, 8, 2), (1, 9, 3), (2, 16, 4)])
def test_rows_of_slabs_are_those_of_the_whole(stride, size, parts):
    program = dense(stride=stride, size=size)
    (nest,) = program.stages[0].nests
    split = program.map_main(lambda one: one.split_rows(parts))
    one, slabs = module_of(program), module_of(split)
    with torch.no_grad():
        for convolution in slabs.convolutions[0]:
            convolution.weight.copy_(one.convolutions[0][0].weight)
        x = torch.randn(1, *program.stages[0].input)
        assert torch.allclose(one(x), slabs(x), atol=1e-5)
    assert split.multiply_adds == program.multiply_adds
    assert sum(part.rows.length for part in split.stages[0].nests) == nest.all_rows


def test_what_does_not_divide_is_illegal(transforms):
    odd = dense(channels=7, outputs=9)
    for name in ("group", "bottleneck", "input-bottleneck", "split-outputs"):
        result = [label for label, _ in transforms[name].variants(odd)]
        assert not result, f"{name} has {result}"


def test_tied_tiles_divide_work_and_weights():
    program = dense()
    for tiles in (2, 4, 16):
        grouped = program.map_main(lambda nest, tiles=tiles: (nest.tie(tiles),))
        assert grouped.multiply_adds * tiles == program.multiply_adds
        assert grouped.parameters * tiles == program.parameters
    assert program.stages[0].nests[0].tie(3) is None


def test_operators_of_a_depthwise_program(transforms):
    ((label, program),) = transforms["depthwise"].variants(dense())
    assert label == "depthwise"
    (spec,) = specs_of(program, batch=2)
    assert spec.kind == "depthwise_conv2d"
    assert spec.input == (2, 16, 8, 8)
    assert not list(transforms["depthwise"].variants(program)), "it is depthwise already"


def test_a_smaller_filter_has_the_same_middle(transforms):
    program = dense(kernel=5)
    result = dict(transforms["kernel-shrink"].variants(program))
    assert set(result) == {"kernel-shrink(1)", "kernel-shrink(3)"}
    assert result["kernel-shrink(3)"] == dense(kernel=3)
    # A pointwise convolution without padding has no smaller filter.
    assert not list(transforms["kernel-shrink"].variants(dense(kernel=1)))


def test_variants_are_cheaper_and_each_is_there_once(transforms):
    program = dense(32, 32)
    result = variants(program, transforms.values(), 2)
    assert next(iter(result)) == UNCHANGED
    assert len(set(result.values())) == len(result)
    assert all(
        row.multiply_adds < program.multiply_adds
        for label, row in result.items()
        if label != UNCHANGED
    )
    assert any(" " in label for label in result if label != UNCHANGED), "sequences are among them"


@given(st.sampled_from([8, 12, 16]), st.sampled_from([8, 16, 24]), st.integers(1, 2), st.data())
def test_nests_cover_each_output_once(transforms, channels, outputs, stride, data):
    result = variants(dense(channels, outputs, stride=stride), transforms.values(), 2)
    chosen = result[data.draw(st.sampled_from(sorted(result)))]
    for stage in chosen.stages:
        written = np.zeros(stage.output[:2], int)
        for nest in stage.nests:
            written[nest.outputs.start : nest.outputs.stop, nest.rows.start : nest.rows.stop] += 1
            assert nest.inputs.stop <= stage.input[0]
            assert nest.columns == stage.output[2]
        assert (written == 1).all()
