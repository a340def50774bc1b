"""Layers of a network, channels that agree, and the space of networks."""

import numpy as np
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_transforms._network.channels import channel_groups, traced
from chameleon_transforms._network.replacement import replacements, with_modules
from chameleon_transforms._network.space import UNCHANGED, NetworkSpace
from torch import nn


def names(groups):
    return {group.name: group for group in groups}


def test_a_skip_connection_makes_layers_agree(small, images):
    groups = names(channel_groups(traced(small, images)))
    skip = groups["stem"]
    assert set(skip.writers) == {"stem", "block.second"}
    assert set(skip.readers) == {"block.first", "down"}
    inner = groups["block.first"]
    assert inner.normalisations == ("block.norm",)
    assert inner.readers == ("block.second",)
    assert groups["down"].products == ("classifier",)


class Odd(nn.Module):
    """A convolution, then something that reads its channels."""

    def __init__(self, change):
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.change = change

    def forward(self, x):
        return self.change(self, self.first(x))


def reshaped(net, x):
    return net.second(x).reshape(x.shape[0], 32, -1).mean(2) + x.mean()


def concatenated(net, x):
    return torch.cat([net.second(x), x], 1).mean((2, 3))


def two_consumers(net, x):
    return net.second(x).mean((2, 3)) + x.flatten(2).sum(2)


@pytest.mark.parametrize("change", [concatenated, two_consumers, reshaped])
def test_consumers_that_disagree_keep_all_channels(change, images):
    result = channel_groups(traced(Odd(change), images))
    assert "second" not in names(result)
    assert "first" not in names(result), "what reads it beside the convolution needs all of them"


def test_every_network_of_the_space_runs(small, images, space):
    rows = space.design.sample(12, np.random.default_rng(0))
    assert len(rows) == 12
    before = small(images)
    for row in rows:
        candidate = space.candidate(row)
        changed = with_modules(space.network.module, replacements(space, candidate)).eval()
        assert changed(images).shape == before.shape
        weights = sum(
            item.weight.numel() + (0 if item.bias is None else item.bias.numel())
            for item in changed.modules()
            if isinstance(item, nn.Conv2d)
        )
        biases = sum(
            item.bias.numel()
            for item in changed.modules()
            if type(item).__name__ == "TransformedConvolution" and item.bias is not None
        )
        assert weights + biases == sum(item.parameters for item in candidate.programs.values())


def test_the_original_is_the_first_row(small, images, space):
    candidate = space.candidate(space.original)
    assert set(candidate.labels.values()) == {UNCHANGED}
    assert not replacements(space, candidate)


def test_fewer_channels_reach_all_who_agree(space):
    row = np.array(space.original)
    row[space.design.index["width:stem"]] = 1
    candidate = space.candidate(row)
    assert candidate.channels["stem"] == 8
    sizes = {name: program.stages[0] for name, program in candidate.programs.items()}
    assert sizes["stem"].output[0] == sizes["block.second"].output[0] == 8
    assert sizes["block.first"].input[0] == sizes["down"].input[0] == 8


class Twice(nn.Module):
    """A layer used twice, two modules with one weight, and one of each alone."""

    def __init__(self, smaller=False):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.twice = nn.Conv2d(16, 16, 3, padding=1)
        self.tied = nn.Conv2d(16, 16, 3, padding=1)
        self.also = nn.Conv2d(16, 16, 3, padding=1)
        self.also.weight = self.tied.weight
        self.smaller = smaller

    def forward(self, x):
        x = self.twice(self.stem(x))
        x = self.twice(x[:, :, ::2, ::2] if self.smaller else x)
        return self.also(self.tied(x)).mean((2, 3))


def test_shared_weights_stay_and_a_layer_used_twice_has_one_choice(images, transforms):
    network = traced(Twice(), images)
    assert set(network.untransformable) == {"tied", "also"}
    assert {layer.name for layer in network.layers} == {"stem", "twice"}
    space = NetworkSpace(network, [transforms["group"]], sequence=1, widths=(1, 2))
    assert not space.groups, "all who write or read those channels are not known once"
    row = [0] * len(space.design.knobs)
    row[space.design.index["layer:twice"]] = 1
    candidate = space.candidate(row)
    changed = with_modules(network.module, replacements(space, candidate))
    assert changed(images).shape == (1, 16)


def test_a_layer_used_for_two_shapes_stays(images):
    assert "different shapes" in traced(Twice(smaller=True), images).untransformable["twice"]


def test_a_network_without_convolutions_is_refused():
    with pytest.raises(ConfigError, match="no convolution"):
        traced(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.zeros(1, 1, 2, 2))


class Control(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_control_flow_is_refused(images):
    with pytest.raises(ConfigError, match="cannot be traced"):
        traced(Control(), images)


def test_wrong_images_are_refused(small):
    with pytest.raises(ConfigError, match="does not take images"):
        traced(small, torch.zeros(1, 3, 8, 8))
