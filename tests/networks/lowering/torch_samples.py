"""Networks that torch's own samples of its operators have shown to be wrong or to fail."""

import math

import torch
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import holed, of, r


def _symmetric(x):
    """A positive definite matrix of any one."""
    return x @ x.mT + torch.eye(x.shape[-1])


def _factored(x, y):
    """Solutions by Cholesky's factor of a matrix, and both of its factors."""
    lower = torch.linalg.cholesky(_symmetric(x))
    upper = torch.linalg.cholesky(_symmetric(x[:, :2, :2]), upper=True)
    return upper, torch.cholesky_solve(y, lower), torch.cholesky_inverse(lower)


def _triangular(x, y):
    """Solutions of triangular systems, most of them large, and some with one right side."""
    a, solve = x + 8 * torch.eye(x.shape[-1]), torch.linalg.solve_triangular
    return (
        solve(a / 8, y, upper=False, unitriangular=True),
        solve(a, y[0], upper=True),
        solve(a[:, :3, :3], y[0, :3], upper=True, unitriangular=True),
        solve(a[0, :40, :40], y.mT[..., :40], upper=False, left=False),
        *torch.triangular_solve(y[0], a[0], transpose=True),
    )


def _solved(x, y):
    """Solutions by the factors of a matrix and by those of the transposed one."""
    factors = torch.linalg.lu_factor(x)
    return [torch.linalg.lu_solve(*factors, y, adjoint=adjoint) for adjoint in (False, True)]


def _rotation(x):
    """The matrix with orthogonal columns that is nearest to any one."""
    left, _, right = torch.linalg.svd(x)
    return left[:, : x.shape[1]] @ right


def _reflected(x, y):
    """A matrix as reflections, and their products."""
    parts = torch.geqrf(x)
    return (
        *parts,
        torch.linalg.householder_product(*parts),
        torch.ormqr(*parts, y),
        torch.ormqr(*parts, y.mT, left=False, transpose=True),
    )


def _with_nothing(x):
    """Numbers, some of which are none."""
    return torch.where(x > 0.5, torch.nan, x)


_BESSEL = (
    *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1", "i1e", "erfcx"),
    *("modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0"),
)
_SPREAD = torch.linspace(-6.0, 9.0, 91)

SAMPLES = {
    "no input": lambda: of(lambda: (torch.logspace(0, 2, 5), torch.eye(2, 3))),
    "functions that torch cannot export": lambda: of(
        lambda x, y, start: (
            *(x.cov(), torch.corrcoef(input=x), torch.corrcoef(y), x.narrow(0, start, 2)),
            torch.narrow(input=x, dim=0, start=1, length=2),
            torch.cov(input=x, fweights=torch.tensor([1, 2, 0]), aweights=y.abs(), correction=0),
            torch.combinations(input=y, r=2),
            # Each column more doubles the operators at least.
            *torch.linalg.lstsq(x[1:, :2], b=x[1:, 1:], driver="gelss"),
            *torch.linalg.lstsq(x[1:, :2], x[1:, 1:])[:2],
            torch.linalg.lstsq(x[1:, :2].mT, y[:2, None], driver="gels").solution,
        ),
        torch.cat([r(3, 3) + torch.eye(3), r(1, 3)]),
        r(3),
        torch.tensor(-3),
    ),
    "small numbers and none": lambda: of(
        lambda x: (
            *(F.softshrink(x), x.nanmean(1), x != x, 0.0 * x),  # noqa: PLR0124 - it is NaN
            *(x != 0, x != x.flip(1), torch.logical_not(x > 0), x.bool()),
            *(1e6 * F.elu(x), 1e6 * F.celu(x, 0.5), 1e6 * F.selu(x)),
        ),
        torch.tensor([[-1e-6, torch.nan, -3e-6], [2e-6, -1e-4, 0.0]]),
    ),
    "polynomials of Chebyshev": lambda: of(
        lambda x, n: tuple(
            getattr(torch.special, f"{shift}chebyshev_polynomial_{kind}")(x, n)
            for kind in "tuvw"
            for shift in ("", "shifted_")
        ),
        torch.tensor([-4.0, -1.0, -0.3, 0.0, 0.5, 0.7, 1.0, 3.5]),
        torch.tensor([[-1.0], [0.0], [1.5], [4.0], [9.0]]),
    ),
    "histograms of one number and none": lambda: of(
        lambda x: (torch.histc(x[0], 4), torch.histc(x[1], 3, max=2.0), torch.histc(x[:0], 3)), r(2)
    ),
    "middle of a number": lambda: of(lambda x: (x.median(), *x.nanmedian(0), *x.kthvalue(1)), r()),
    "place of a number in an order": lambda: of(
        lambda x, y: (torch.searchsorted(x, y), torch.searchsorted(x, 0.25, right=True)),
        r(7).sort()[0],
        r(),
    ),
    "singular values": lambda: of(
        lambda x, y, z: (
            torch.linalg.svdvals(x[:2, :2]),
            _rotation(y.mT),
            torch.linalg.pinv(x[:2, :2], hermitian=True, rtol=0.01),
            torch.linalg.pinv(z, atol=torch.tensor(0.01)),
        ),
        r(3, 3) + torch.diag(torch.tensor([5.0, 3.0, 1.0])),
        r(3, 4) + torch.diag(torch.tensor([5.0, 3.0, 2.0, 1.0]))[:3],
        r(2, 3, 1) @ r(2, 1, 2),
    ),
    "reflections": lambda: of(
        _reflected, torch.cat([r(2, 4, 3), torch.eye(4, 3).expand(1, 4, 3)]), r(3, 4, 2)
    ),
    "loss of products in chunks": lambda: of(
        lambda x, y: tuple(
            F.linear_cross_entropy(
                x, y, torch.tensor([0, 3, 2]), reduction=reduction, options=options
            )
            for options in [torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)]
            for reduction in ("mean", "none")
        ),
        r(3, 8),
        r(4, 8),
    ),
    "places of numbers": lambda: of(
        lambda x: (
            torch.nonzero_static(x, size=7),
            torch.nonzero_static(x, size=3, fill_value=9),
            torch.nonzero_static(x[0, 0] > 0, size=2),
            torch.nonzero_static(x[:0], size=2),
        ),
        torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]]),
    ),
    "counts as norms": lambda: of(
        lambda x: (torch.linalg.vector_norm(x.relu(), 0), F.normalize(x.relu(), 0.0, dim=0)),
        r(3, 4) - 0.5,
    ),
    "reductions of segments": lambda: of(
        lambda x: tuple(
            torch.segment_reduce(
                x, kind, lengths=torch.tensor([[2, 0, 3]] * 2), axis=1, initial=first
            )
            for kind in ("sum", "mean", "prod", "max", "min")
            for first in (None, 0.5)
        ),
        r(2, 5, 3),
    ),
    "reductions of segments by their ends": lambda: of(
        lambda x: torch.segment_reduce(x, "max", offsets=torch.tensor([0, 2, 2, 5])), r(5)
    ),
    "samples of volumes": lambda: of(
        lambda x, y: tuple(
            F.grid_sample(x, y, mode=mode, padding_mode=padding, align_corners=mode == "nearest")
            for mode, padding in [
                *(("bilinear", padding) for padding in ("zeros", "border", "reflection")),
                ("nearest", "reflection"),
            ]
        ),
        r(1, 2, 3, 4, 5),
        3 * r(1, 2, 3, 2, 3) - 1.5,
    ),
    "numbers by places in no axis": lambda: of(torch.take, r(), torch.zeros((), dtype=torch.int64)),
    "a number reduced by an index": lambda: of(
        lambda x, y: x.index_reduce(0, torch.zeros(1, dtype=torch.int64), y, "amin"), r(), r()
    ),
    "smooth by another factor than that of the sizes": lambda: of(
        lambda x: torch.ops.aten._upsample_bilinear2d_aa(x, [3, 4], False, 1.7, 0.9), r(1, 2, 8, 9)
    ),
    "histograms": lambda: of(
        lambda x, y: (
            *torch.histogram(x, 5, weight=y),
            *torch.histogram(x, torch.tensor([0.1, 0.2, 0.7]), density=True),
            *torch.histogram(x, 3, range=(0.2, 0.6)),
            torch.histogramdd(x, [3, 2], range=[0.0, 0.5, 0.1, 0.9], weight=y[:, 0]).hist,
            torch.histogram(x[:0], 2).bin_edges,
        ),
        r(30, 2),
        r(30, 2),
    ),
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
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), holed(2, 3, 7, 5)
    ),
    "places of adaptive pooling in volumes": lambda: of(
        lambda x: F.adaptive_max_pool3d(x, (3, 3, 2), return_indices=True), holed(2, 5, 9, 7, 4)
    ),
    "places of pooling": lambda: of(
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), holed(1, 3, 8, 7)
    ),
    "places of spread pooling": lambda: of(
        lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True), holed(3, 8, 7)
    ),
    "statistics of a layer": lambda: of(
        lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5), r(3, 4)
    ),
    "statistics of a batch": lambda: of(
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.5, 1e-5), r(1, 2, 3)
    ),
    "mean that rounds up": lambda: of(
        lambda x: F.avg_pool2d(x, 4, (2, 3), 1, ceil_mode=True), r(3, 9, 8)
    ),
    "mean with a divisor that rounds up": lambda: of(
        F.avg_pool3d, r(1, 3, 4, 4, 4), kernel_size=2, padding=1, ceil_mode=True, divisor_override=3
    ),
    "nearest by a fraction": lambda: of(F.interpolate, r(1, 2, 4, 4), scale_factor=1.7),
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
    "transposed by computed weights, uncovered": lambda: of(
        lambda x, w: F.conv_transpose2d(x, w, None, 1, 2, 1, 1, dilation=2),
        *(r(1, 4, 8, 7), r(4, 3, 3, 2)),
    ),
    "memory": lambda: of(
        lambda x: (x.as_strided((2, 3), (1, 2)), x.as_strided((4, 5), (5, 1), 2)), r(3, 8)
    ),
    "memory of channels last": lambda: of(
        lambda x, y: (
            x.roll((1, -2, 7), (2, 3, 1)).as_strided((6, 5), (7, 2), 1),
            x.as_strided_scatter(y, (2, 3), (5, 1), 1),
        ),
        r(1, 3, 4, 5).to(memory_format=torch.channels_last),
        r(2, 3),
    ),
    "one part": lambda: of(lambda x: torch.split(x, 5), r(3)),
    "any of numbers": lambda: of(lambda x: (x.any(), x.any(0)), r(3, 2)),
    "nothing": lambda: of(lambda x: x > 1, r(1, 0, 3)),
    "transposed volumes by computed weights": lambda: of(
        lambda x, w: F.conv_transpose3d(x, w, None, 2, 2, 1), r(1, 3, 4, 4, 4), r(3, 3, 3, 3, 3)
    ),
    "bessel": lambda: of(
        lambda x: [getattr(torch.special, name)(x) for name in _BESSEL], _SPREAD[_SPREAD != 0]
    ),
    "gamma": lambda: of(
        lambda x: (x.lgamma(), x.digamma(), *(torch.polygamma(n, x) for n in range(4))),
        torch.linspace(-4.45, 9.0, 31),
    ),
    "inverse of errors": lambda: of(lambda x: (x.erfinv(), torch.special.ndtri(x)), torch.rand(40)),
    "inverse of errors in the tail": lambda: of(torch.special.ndtri, torch.logspace(-37, -1, 40)),
    "running extremes": lambda: of(
        lambda x: (*x.cummax(1), *x.cummin(0)), torch.tensor([[1.0, 3, 3, 2], [0, 5, -1, 5]])
    ),
    "running logarithm of a sum": lambda: of(lambda x: x.logcumsumexp(1), 9 * r(3, 7)),
    "numbers by index": lambda: of(
        lambda x, y: [
            x.index_reduce(0, torch.tensor([2, 0, 2]), y, kind)
            for kind in ("prod", "mean", "amax", "amin")
        ],
        r(4, 3),
        r(3, 3),
    ),
    "put": lambda: of(lambda x, y: x.put(torch.tensor([5, 1]), y, True), r(3, 4), r(2)),
    "scattered by a mask": lambda: of(lambda x, y: x.masked_scatter(x > 0, y), r(3, 4), r(12)),
    "scattered products": lambda: of(
        lambda x: x.scatter(1, torch.tensor([[0, 1], [2, 2]]), 3.0, reduce="multiply"), r(2, 4)
    ),
    "onto a diagonal": lambda: of(lambda x, y: x.diagonal_scatter(y, 1), r(4, 4), r(3)),
    "signs": lambda: of(
        lambda x, y: (x.copysign(y), x.copysign(-1), x.signbit(), x.angle()), r(3, 4), r(4)
    ),
    "parts of numbers": lambda: of(
        lambda x: (*torch.frexp(x), torch.ldexp(x, torch.tensor(3))),
        torch.tensor([0.0, 1.0, -8.0, 0.3, -1e-20, 7e9]),
    ),
    "integers times powers of two": lambda: of(
        torch.ldexp,
        torch.tensor([0, 3, -3, 2**62, 1, 5, 7]),
        torch.tensor([128, 2**63 - 1, -(2**63), -150, -140, 60, 0]),
    ),
    "extremes of what is a number": lambda: of(
        lambda x, y: (
            torch.fmax(_with_nothing(x), _with_nothing(y)),
            torch.fmin(_with_nothing(x), _with_nothing(y)),
        ),
        r(4, 9),
        r(4, 9),
    ),
    "distances of pairs": lambda: of(lambda x: (F.pdist(x), F.pdist(x, 1.0)), r(4, 3)),
    "sum of products": lambda: of(
        lambda x, y, z: (
            torch.addbmm(x, y, z, beta=0.5, alpha=2.0),
            torch.addbmm(x * math.nan, y, z, beta=0),
        ),
        r(3, 5),
        r(2, 3, 4),
        r(2, 4, 5),
    ),
    "cholesky": lambda: of(_factored, r(2, 3, 3), r(2, 3, 2)),
    "large triangles": lambda: of(_triangular, r(2, 64, 64), r(2, 64, 3)),
    "lu": lambda: of(lambda x: (*torch.linalg.lu(x), *torch.linalg.lu_factor(x.mT)), r(2, 3, 2)),
    "inverse": lambda: of(
        lambda x, y: (
            torch.linalg.inv(x),
            torch.linalg.det(x[:, :2, :2]),
            *torch.linalg.slogdet(x[:, 1:, 1:]),
            torch.linalg.solve(x, y),
            torch.linalg.solve(x[:, :2, :2], y[:, :2].mT, left=False),
        ),
        r(2, 3, 3),
        r(2, 3, 2),
    ),
    "solutions by factors": lambda: of(_solved, r(2, 3, 3), r(2, 3, 2)),
    "qr": lambda: of(
        lambda x: (*torch.linalg.qr(x), *torch.linalg.qr(x.mT, "complete")), r(2, 3, 2)
    ),
    "hyperbolic": lambda: of(lambda x: (x.sinh(), x.cosh()), torch.linspace(-9.0, 9.0, 64)),
    "places in an order": lambda: of(
        lambda x, y: (
            torch.searchsorted(x.sort(1).values, y),
            torch.searchsorted(x, y, right=True, sorter=x.argsort(1)),
        ),
        r(3, 5),
        r(3, 2),
    ),
    "determinant of nothing": lambda: of(torch.linalg.det, r(0, 0)),
    "mean of unbatched windows": lambda: of(lambda x: F.adaptive_avg_pool1d(x, 3), r(4, 8)),
    "smoothed by a fraction": lambda: of(
        lambda x: F.interpolate(x, scale_factor=0.6, mode="bilinear", antialias=True), r(1, 2, 7, 6)
    ),
    "axes of a number": lambda: of(lambda x: x.permute(()), r()),
}
