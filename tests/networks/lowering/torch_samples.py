"""Networks that torch's own samples of its operators have shown to be wrong or to fail."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import Cases, of, r

SAMPLES: Cases = {
    "cumulative sum of a number": lambda: of(lambda x: x.cumsum(0), r()),
    "largest along a number": lambda: of(lambda x: x.max(0), r()),
    "a number in order": lambda: of(lambda x: x.sort(0), r()),
    "spread of nothing": lambda: of(lambda x: torch.std_mean(x, 1), r(0, 5)),
    "mean of nothing": lambda: of(lambda x: x.mean(1), r(3, 0)),
    "product over nothing": lambda: of(lambda x, y: x @ y + 1, r(3, 0), r(0, 2)),
    "bias without inputs": lambda: of(F.linear, r(2, 0), r(3, 0), r(3)),
    "nothing beside something": lambda: of(lambda x, y: torch.cat([x, y]), r(0), r(2)),
    "choice of two types": lambda: of(
        lambda x: torch.where(x > 0, x, torch.zeros((), dtype=torch.int64)), r(3, 4)
    ),
    "places of adaptive pooling": lambda: of(
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), r(2, 3, 7, 5)
    ),
    "places of adaptive pooling in volumes": lambda: of(
        lambda x: F.adaptive_max_pool3d(x, (3, 2, 1), return_indices=True), r(1, 3, 7, 5, 4)
    ),
    "places of pooling": lambda: of(
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), r(1, 3, 8, 7)
    ),
    "places of spread pooling": lambda: of(
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True), r(3, 8, 7)
    ),
    "statistics of a layer": lambda: of(
        lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5), r(3, 4)
    ),
    "mean that rounds up": lambda: of(
        lambda x: F.avg_pool2d(x, 4, (2, 3), 1, ceil_mode=True), r(3, 9, 8)
    ),
    "mean with a divisor that rounds up": lambda: of(
        lambda x: F.avg_pool3d(x, 2, padding=1, ceil_mode=True, divisor_override=3),
        r(1, 3, 4, 4, 4),
    ),
    "nearest by a fraction": lambda: of(
        lambda x: F.interpolate(x, scale_factor=1.7), r(1, 2, 4, 4)
    ),
    "bilinear by a fraction": lambda: of(
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), r(1, 2, 4, 5)
    ),
    "bicubic by a fraction": lambda: of(
        lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic"), r(1, 2, 7, 6)
    ),
    "transposed by computed weights in groups": lambda: of(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2), r(1, 4, 8, 7), r(4, 3, 3, 3)
    ),
    "transposed by computed weights, dilated": lambda: of(
        lambda x, w: F.conv_transpose1d(x, w, None, 2, 1, 1, 2, dilation=3), r(1, 4, 8), r(4, 3, 3)
    ),
    "memory": lambda: of(lambda x: x.as_strided((2, 3), (1, 2)), r(3, 8)),
    "one part": lambda: of(lambda x: torch.split(x, 5), r(3)),
}
