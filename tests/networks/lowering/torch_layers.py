"""Convolutions and normalisations of torch."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import Of, net, of, r, warm

CONVOLUTIONS = {
    "conv1d": lambda: net(nn.Conv1d(4, 6, 3, stride=2, padding=1), r(2, 4, 11)),
    "conv1d grouped dilated": lambda: net(nn.Conv1d(4, 8, 3, dilation=2, groups=2), r(1, 4, 13)),
    "conv1d depthwise": lambda: net(nn.Conv1d(4, 4, 3, padding="same", groups=4), r(1, 4, 9)),
    "conv2d grouped": lambda: net(nn.Conv2d(4, 8, 3, groups=2, padding=1), r(1, 4, 7, 7)),
    "conv2d dilated": lambda: net(nn.Conv2d(4, 8, 3, dilation=2, stride=2), r(1, 4, 11, 9)),
    "conv2d asymmetric": lambda: net(nn.Conv2d(3, 4, (1, 5), padding="same"), r(1, 3, 6, 8)),
    "conv2d reflect padding": lambda: net(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), r(1, 3, 6, 8)
    ),
    "conv2d weights computed": lambda: of(
        lambda x, w: F.conv2d(x, w / w.norm(), padding=1), r(1, 3, 6, 6), r(4, 3, 3, 3)
    ),
    "conv3d": lambda: net(nn.Conv3d(3, 4, 3, padding=1, stride=(1, 2, 2)), r(1, 3, 4, 6, 6)),
    "conv3d grouped": lambda: net(nn.Conv3d(4, 4, 3, groups=4), r(1, 4, 4, 5, 5)),
    "unbatched conv2d": lambda: net(nn.Conv2d(3, 4, 3), r(3, 6, 6)),
    "transposed 1d": lambda: net(nn.ConvTranspose1d(4, 6, 4, stride=2, padding=1), r(1, 4, 7)),
    "transposed 1d grouped": lambda: net(
        nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1, groups=2), r(2, 4, 5)
    ),
    "transposed 2d": lambda: net(nn.ConvTranspose2d(4, 3, 2, stride=2), r(1, 4, 5, 6)),
    "transposed 2d padded": lambda: net(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), r(1, 4, 5, 6)
    ),
    "transposed 2d grouped": lambda: net(
        nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), groups=2), r(1, 4, 5, 4)
    ),
    "transposed 2d dilated": lambda: net(
        nn.ConvTranspose2d(4, 3, 3, dilation=2, padding=1, bias=False), r(1, 4, 5, 4)
    ),
    "transposed 1d uncovered": lambda: net(
        nn.ConvTranspose1d(4, 3, 2, padding=3, output_padding=2, dilation=3), r(1, 4, 9)
    ),
    "transposed 2d uncovered": lambda: net(
        nn.ConvTranspose2d(4, 3, 3, padding=1, output_padding=(2, 1), dilation=3), r(1, 4, 5, 4)
    ),
    "transposed 3d uncovered": lambda: net(
        nn.ConvTranspose3d(4, 6, 2, padding=1, output_padding=1, dilation=2, groups=2),
        r(1, 4, 3, 4, 3),
    ),
    "transposed 3d": lambda: net(nn.ConvTranspose3d(4, 3, 2, stride=2), r(1, 4, 3, 4, 3)),
    "transposed 3d padded": lambda: net(
        nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        r(1, 4, 2, 3, 3),
    ),
}

NORMALISATIONS = {
    "batch norm 1d alone": lambda: net(warm(nn.BatchNorm1d(6)), r(4, 6)),
    "batch norm 1d sequence": lambda: net(warm(nn.BatchNorm1d(6)), r(2, 6, 5)),
    "batch norm 2d alone": lambda: net(warm(nn.BatchNorm2d(6, affine=False)), r(2, 6, 5, 4)),
    "batch norm 3d alone": lambda: net(warm(nn.BatchNorm3d(3)), r(1, 3, 4, 5, 4)),
    "conv1d axes from the end": lambda: net(
        nn.Sequential(nn.Conv1d(3, 4, 3), Of(lambda x: (x[:, None] * 2).permute(0, -2, -1, 1))),
        r(1, 3, 9),
    ),
    "conv1d batch norm": lambda: net(
        warm(nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU())), r(1, 3, 9)
    ),
    "conv3d batch norm": lambda: net(
        warm(nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4))), r(1, 3, 4, 5, 5)
    ),
    "linear batch norm": lambda: net(
        warm(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))), r(3, 5)
    ),
    "group norm": lambda: net(nn.GroupNorm(2, 6), r(2, 6, 5, 4)),
    "conv group norm": lambda: net(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU()), r(1, 3, 7, 7)
    ),
    "group norm 1d": lambda: net(nn.GroupNorm(3, 6, affine=False), r(2, 6, 5)),
    "instance norm": lambda: net(nn.InstanceNorm2d(4, affine=True), r(2, 4, 5, 6)),
    "instance norm plain": lambda: net(nn.InstanceNorm2d(4), r(2, 4, 5, 6)),
    "instance norm 1d": lambda: net(nn.InstanceNorm1d(4), r(2, 4, 5)),
    "layer norm": lambda: net(nn.LayerNorm(6), r(2, 5, 6)),
    "layer norm two axes": lambda: net(nn.LayerNorm((5, 6)), r(2, 5, 6)),
    "layer norm plain": lambda: net(nn.LayerNorm(6, elementwise_affine=False), r(2, 6)),
    "rms norm": lambda: net(nn.RMSNorm(6, eps=1e-5), r(2, 5, 6)),
    "rms norm by hand": lambda: of(
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), r(2, 5, 6)
    ),
    "local response norm": lambda: net(nn.LocalResponseNorm(3), r(1, 6, 5, 5)),
    "normalize": lambda: of(lambda x: F.normalize(x, dim=1), r(3, 6)),
    "weight norm": lambda: net(
        nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), r(1, 3, 7)
    ),
}
