"""Resizing, sampling and pooling of images of torch."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import holed, net, of, r

_FAR = torch.tensor([torch.nan, torch.inf, -torch.inf, 3e38, 1e4, -1e4, 1.0, -1.0, 2.5])
"""Coordinates at the edges of an image, far from it, and nowhere."""


def _far_places():
    """A grid with a far coordinate in each place."""
    grid = r(1, 2, len(_FAR), 2).tanh()
    for axis in range(2):
        grid[0, axis, :, axis] = _FAR
    return grid


IMAGES = {
    "nearest": lambda: of(lambda x: F.interpolate(x, scale_factor=2), r(1, 3, 4, 5)),
    "nearest size": lambda: of(lambda x: F.interpolate(x, size=(7, 9)), r(1, 3, 4, 5)),
    "nearest exact": lambda: of(F.interpolate, r(1, 3, 4, 5), size=(7, 9), mode="nearest-exact"),
    "nearest down": lambda: of(lambda x: F.interpolate(x, scale_factor=0.5), r(1, 3, 6, 8)),
    "nearest 1d": lambda: of(lambda x: F.interpolate(x, scale_factor=2), r(1, 3, 5)),
    "nearest 3d": lambda: of(lambda x: F.interpolate(x, scale_factor=2), r(1, 2, 3, 2, 3)),
    "linear 1d": lambda: of(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), r(1, 3, 5)),
    "bilinear": lambda: of(F.interpolate, r(1, 3, 4, 5), scale_factor=2, mode="bilinear"),
    "bilinear aligned": lambda: of(
        lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True), r(1, 3, 4, 5)
    ),
    "bilinear down": lambda: of(F.interpolate, r(1, 3, 7, 8), size=(3, 2), mode="bilinear"),
    "bilinear antialias": lambda: of(
        lambda x: F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True), r(1, 3, 7, 8)
    ),
    "bicubic": lambda: of(F.interpolate, r(1, 3, 4, 5), scale_factor=2, mode="bicubic"),
    "bicubic aligned": lambda: of(
        lambda x: F.interpolate(x, size=(6, 7), mode="bicubic", align_corners=True), r(1, 3, 4, 5)
    ),
    "trilinear": lambda: of(F.interpolate, r(1, 2, 3, 4, 3), scale_factor=2, mode="trilinear"),
    **{
        f"{mode} by a fraction that keeps the size": lambda mode=mode, axes=axes: of(
            F.interpolate, r(1, 2, *[6] * axes), scale_factor=1.1, mode=mode
        )
        for axes, mode in [(1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")]
    },
    "area": lambda: of(lambda x: F.interpolate(x, size=(3, 2), mode="area"), r(1, 3, 7, 8)),
    "conv upsample conv": lambda: net(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(4, 2, 3, padding=1),
            nn.PixelShuffle(1),
        ),
        r(1, 3, 5, 4),
    ),
    "grid sample": lambda: of(
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), r(1, 3, 5, 6), r(1, 4, 3, 2)
    ),
    "grid sample border": lambda: of(
        F.grid_sample, r(1, 3, 5, 6), r(1, 4, 3, 2), padding_mode="border", align_corners=True
    ),
    "grid sample nearest": lambda: of(
        F.grid_sample, r(1, 3, 5, 6), r(1, 4, 3, 2), mode="nearest", align_corners=False
    ),
    **{
        f"grid sample {mode} {padding} {align}": lambda mode=mode, padding=padding, align=align: of(
            F.grid_sample,
            r(1, 2, 5, 6),
            _far_places(),
            mode=mode,
            padding_mode=padding,
            align_corners=align,
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding, align in [("zeros", False), ("border", True), ("reflection", False)]
    },
    "constant resized to its size": lambda: of(
        lambda x: x + F.interpolate(x.new_ones(1, 3, 4, 4), (4, 4), mode="bilinear"), r(1, 3, 4, 4)
    ),
    "affine grid": lambda: of(
        lambda t: F.affine_grid(t, [1, 3, 4, 5], align_corners=False), r(1, 2, 3)
    ),
    "adaptive average": lambda: of(
        lambda x: F.adaptive_avg_pool2d(x, 1).sum() + F.adaptive_avg_pool2d(x, (3, 2)),
        r(1, 3, 6, 4),
    ),
    "adaptive average uneven": lambda: of(F.adaptive_avg_pool2d, r(1, 3, 7, 6), output_size=(3, 4)),
    "adaptive average wider": lambda: of(lambda x: F.adaptive_avg_pool2d(x, 7), r(1, 3, 4, 4)),
    "adaptive average 1d": lambda: of(lambda x: F.adaptive_avg_pool1d(x, 3), r(1, 3, 7)),
    "adaptive average 3d": lambda: of(lambda x: F.adaptive_avg_pool3d(x, 2), r(1, 3, 4, 5, 4)),
    "adaptive max": lambda: of(
        lambda x: [F.adaptive_max_pool2d(x, size) for size in (1, (7, 3), (3, 4))],
        holed(9, 9, 7, 6),
    ),
    "adaptive max 1d": lambda: of(lambda x: F.adaptive_max_pool1d(x, 1), holed(1, 3, 6)),
    "max pool": lambda: of(lambda x: F.max_pool2d(x.relu(), 3, 2, 1), holed(1, 3, 8, 7)),
    "max pool of its own stride": lambda: of(
        lambda x: (F.max_pool2d(x, 2, ceil_mode=True), F.max_pool3d(x, 2, ceil_mode=True)),
        r(1, 3, 7, 7),
    ),
    "max pool ceil": lambda: of(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), holed(1, 3, 8, 8)),
    "max pool dilated": lambda: of(
        lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2), holed(1, 3, 8, 8)
    ),
    "max pool 1d": lambda: of(lambda x: F.max_pool1d(x, 3, 2, 1), holed(1, 3, 8)),
    "max pool 3d": lambda: of(lambda x: F.max_pool3d(x, 2), holed(1, 3, 4, 4, 6)),
    "average pool": lambda: of(lambda x: F.avg_pool2d(x, 3, 2, 1), r(1, 3, 8, 7)),
    "average pool inside": lambda: of(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), r(1, 3, 8, 7)
    ),
    "average pool ceil": lambda: of(lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), r(1, 3, 8, 8)),
    "average pool 1d": lambda: of(lambda x: F.avg_pool1d(x, 3, 2, 1), r(1, 3, 8)),
    "average pool 3d": lambda: of(lambda x: F.avg_pool3d(x, 2), r(1, 3, 4, 4, 6)),
    "average pool divisor": lambda: of(
        lambda x: F.avg_pool2d(x, 2, divisor_override=3), r(1, 3, 4, 4)
    ),
    "lp pool": lambda: of(lambda x: F.lp_pool2d(x.abs(), 2.0, 2), r(1, 3, 4, 4)),
    "global mean": lambda: net(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        r(1, 3, 6, 6),
    ),
}
