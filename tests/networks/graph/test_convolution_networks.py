"""Networks of convolutions of every kind are read, made of fusions, compiled, and right."""

import numpy as np
import pytest
import torch
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._importers.torch.lowering.importer import torch_graph

functional, nn = torch.nn.functional, torch.nn


def keyword_network():
    """Spotting keywords in a waveform's features: convolutions over time, normalised."""
    return nn.Sequential(
        nn.Conv1d(20, 32, 9, padding=4, bias=False),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 32, 5, stride=2, groups=32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 48, 3, dilation=2),
        nn.ReLU(),
    ), (1, 20, 50)


def video_network():
    """Two convolutions over space and time."""
    return nn.Sequential(
        nn.Conv3d(3, 16, 3, padding=1),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.Conv3d(16, 24, (3, 3, 3), stride=(1, 2, 2), padding=1),
        nn.ReLU(),
    ), (1, 3, 4, 12, 12)


class Upsampling(nn.Module):
    """A U-Net of one step down and up."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.normal = nn.BatchNorm2d(16)
        self.last = nn.Conv2d(32, 8, 3, padding=1, groups=2)

    def forward(self, images):
        passed = torch.relu(self.first(images))
        below = torch.relu(self.down(passed))
        return self.last(torch.cat([torch.relu(self.normal(self.up(below))), passed], 1))


def upsampling_network():
    return Upsampling(), (1, 3, 16, 16)


NORMALISED = [
    lambda w: functional.batch_norm(w[None], None, None, training=True)[0],
    lambda w: functional.instance_norm(w, weight=torch.arange(1.0, 9.0), bias=torch.ones(8)),
    lambda w: functional.layer_norm(w, w.shape[2:], torch.arange(1.0, 4.0)[:, None].repeat(1, 3)),
    lambda w: functional.group_norm(w, 4, torch.arange(1.0, 9.0), torch.ones(8)),
    lambda w: (w - w.mean((1, 2, 3), keepdim=True)) / w.var((1, 2, 3), keepdim=True).sqrt(),
    lambda w: w / w.std((1, 2, 3), keepdim=True),
]
"""Ways to standardise filters."""


class Standardised(nn.Module):
    """Convolutions whose filters are normalised each time."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in NORMALISED)

    def forward(self, images):
        weights = [f(layer.weight) for f, layer in zip(NORMALISED, self.layers, strict=True)]
        return torch.cat(
            [
                functional.conv2d(images, weight, layer.bias, padding=1)
                for weight, layer in zip(weights, self.layers, strict=True)
            ],
            1,
        )


def standardised_network():
    return Standardised(), (1, 8, 16, 16)


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "kinds", "others"),
    [
        (keyword_network, ["conv1d", "depthwise_conv1d", "conv1d"], set()),
        (video_network, ["conv3d", "conv3d"], set()),
        (
            upsampling_network,
            # Rows of each remainder are a convolution of their own.
            ["conv2d"] * 5,
            {"concat", "permute_dims", "reshape"},
        ),
        (standardised_network, ["conv2d"] * len(NORMALISED), {"concat"}),
    ],
    ids=["conv1d", "conv3d", "transposed", "standardised"],
)
def test_networks_of_convolutions(deliver, make, kinds, others):
    torch.manual_seed(0)
    network, shape = make()
    for part in network.modules():
        if hasattr(part, "running_var"):
            part.running_mean.uniform_(-1, 1)
            part.running_var.uniform_(0.5, 2)
            part.weight.data.uniform_(0.5, 2)
    network = network.eval()
    images = torch.randn(shape)
    with torch.no_grad():
        expected = network(images).numpy()
        read = torch_graph(torch.export.export(network, (images,))).module
    for layout in ("NHWC", "NCHW"):
        module = prepare_module(read, layout)
        fusions = find_fusions(module)
        assert [fusion.spec.kind for fusion in fusions] == kinds
        # Normalisation is in the weights, what follows in the kernels.
        assert all(fusion.spec.bias for fusion in fusions)
        assert set(count_unfused_operators(module, fusions)) <= others | {"permute_dims"}
        got = deliver(module, ready=True, guesses=True).run(images.numpy())
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


class Pooled(nn.Module):
    """Convolutions of one axis beside each other, each before another pooling."""

    def __init__(self):
        super().__init__()
        poolings = nn.MaxPool1d(2), nn.AvgPool1d(3), nn.AdaptiveAvgPool1d(1)
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), pooling) for pooling in poolings
        )

    def forward(self, images):
        return [part(images) for part in self.parts]


def test_poolings_of_one_axis_do_not_keep_a_network_from_channels_last(deliver):
    network, images = Pooled().eval(), torch.randn(2, 4, 12)
    with torch.no_grad():
        expected = network(images)
        program = torch.export.export(network, (images,))
    module = prepare_module(torch_graph(program).module, "NHWC")
    assert [fusion.spec.output_layout for fusion in find_fusions(module)] == ["NWC"] * 3
    outputs = deliver(module, ready=True, guesses=True).run(images.numpy())
    for got, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_images_are_moved_to_channels_last_by_the_first_kernel():
    network, shape = video_network()
    program = torch.export.export(network.eval(), (torch.randn(shape),))
    module = prepare_module(torch_graph(program).module, "NHWC")
    fusions = find_fusions(module)
    assert (fusions[0].spec.layout, fusions[0].spec.output_layout) == ("NCDHW", "NDHWC")
    assert count_unfused_operators(module, fusions) == {"permute_dims": 1}
