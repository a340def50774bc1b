"""Element-wise operators, reductions and products of torch."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everywhere

from .torch_networks import holed, ids, net, of, r

_ACTIVATIONS = (
    *("hardswish", "hardsigmoid", "mish", "softplus", "selu", "silu", "gelu", "relu6", "hardtanh"),
    *("softsign", "logsigmoid", "tanhshrink", "softshrink", "hardshrink", "rrelu"),
)
_FUNCTIONS = (
    *("exp", "expm1", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan"),
    *("sinh", "cosh", "tanh", "atan", "floor", "ceil", "round", "trunc", "frac", "sign", "square"),
    *("sigmoid", "exp2", "erfc"),
)

_SCALES, _ZEROS = (0.1, 0.37), torch.tensor([2, -3], dtype=torch.int32)

ELEMENTWISE = {
    "pow float": lambda: of(lambda x: x.abs().pow(1.7), r(3, 4)),
    "pow integer": lambda: of(lambda x: torch.pow(x, 3), r(3, 4)),
    "pow float three": lambda: of(lambda x: torch.pow(x, 3.0), r(3, 4)),
    "pow minus two": lambda: of(lambda x: (x.abs() + 1) ** -2, r(3, 4)),
    "pow half": lambda: of(lambda x: x.abs() ** 0.5, r(3, 4)),
    "negative without signs": lambda: of(lambda x: -x.to(torch.uint8), ids(9, 3, 4)),
    "sign without signs": lambda: of(lambda x: x.to(torch.uint8).sign(), ids(9, 3, 4)),
    "shifts by numbers": lambda: of(
        lambda x: (torch.bitwise_left_shift(x, 3), torch.bitwise_right_shift(x - 5, 1)),
        ids(9, 3, 4),
    ),
    "shifts of numbers": lambda: of(
        lambda x: (1 << x, 100 >> x, 1 << x.int()), torch.tensor([0, 1, 5, 31, 63, 64])
    ),
    "steps of a scale": lambda: of(
        lambda x: (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
            torch.fake_quantize_per_channel_affine(x, x.new_tensor(_SCALES), _ZEROS, 1, -8, 7),
        ),
        torch.tensor([[[0.05, 0.15]], [[1e9, torch.nan]], [[-torch.inf, 0.25]]]).mT,
    ),
    "pow of integers": lambda: of(lambda x: x**2, ids(9, 3, 4)),
    "pow tensor": lambda: of(lambda x, y: x.abs().pow(y), r(3, 4), r(3, 4)),
    "pow of negative by tensor": lambda: of(lambda x: x.pow(torch.full((4,), 2.0)), r(3, 4)),
    "pow scalar base": lambda: of(lambda x: 2.0**x, r(3, 4)),
    "gelu of gpt-2": lambda: of(
        lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3.0)))),
        r(3, 4),
    ),
    "activations": lambda: of(
        lambda x: torch.cat(
            [
                *(getattr(F, name)(x) for name in _ACTIVATIONS),
                *(F.elu(x, 0.7), F.gelu(x, approximate="tanh"), torch.erf(x), F.celu(x, 1.3)),
                *(F.leaky_relu(x, 0.1), F.threshold(x, 0.1, 20.0)),
            ]
        ),
        3 * r(4, 6),
    ),
    "softplus beta": lambda: of(lambda x: F.softplus(x, beta=2.0, threshold=3.0), 3 * r(4, 6)),
    "prelu": lambda: net(nn.PReLU(4), r(2, 4, 3, 3)),
    "prelu one": lambda: net(nn.PReLU(), r(2, 4)),
    "glu": lambda: of(lambda x: F.glu(x, 1), r(2, 6, 3)),
    "functions": lambda: of(
        lambda x: torch.cat(
            [
                *(getattr(torch, name)(x) for name in _FUNCTIONS),
                *(torch.asin(x / 2), torch.acos(x / 2), torch.logit(x / 4), torch.special.expit(x)),
                *(-x, torch.atan2(x, x + 1), torch.hypot(x, x)),
            ]
        ),
        torch.rand(2, 5) + 0.2,
    ),
    "clamp": lambda: of(lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0) + x.clamp_max(1), r(3, 4)),
    "clamp tensors": lambda: of(lambda x, low: torch.clamp(x, min=low, max=low + 1), r(3, 4), r(4)),
    "where": lambda: of(lambda x, y: torch.where(x > y, x, 0.0), r(3, 4), r(3, 4)),
    "masked fill": lambda: of(
        lambda x, m: x.masked_fill(m, float("-inf")).softmax(-1), r(3, 4), ids(2, 3, 1) > 0
    ),
    "masked fill tensor": lambda: of(lambda x: x.masked_fill(x > 0, torch.tensor(2.0)), r(3, 4)),
    "logic": lambda: of(
        lambda x, y: (
            torch.logical_and(x > 0, y > 0)
            | torch.logical_not(x < y) ^ torch.logical_xor(x > 1, y > 1) & ~(x >= y)
        ),
        r(3, 4),
        r(3, 4),
    ),
    "comparisons to float": lambda: of(
        lambda x, y: (x == y).float() + (x != y).to(x.dtype) + (x <= 0).type_as(x), r(3, 4), r(3, 4)
    ),
    "remainder": lambda: of(
        lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 0.7) + x // 0.3, r(3, 4)
    ),
    "integer division": lambda: of(
        lambda x: (
            torch.div(x - 4, 3, rounding_mode="floor"),
            torch.div(x - 4, 3, rounding_mode="trunc"),
            (x - 4) % 3,
            (x - 4) // 2,
            x / 2,
        ),
        ids(9, 3, 4),
    ),
    "integer bits": lambda: of(lambda x: (x & 3) | (x << 1) ^ (x >> 1), ids(9, 3, 4)),
    "casts": lambda: of(
        lambda x: (x * 3).int().float() + (x * 3).long().to(torch.float32) + x.bool().float(),
        r(3, 4),
    ),
    "double inside": lambda: of(lambda x: (x.double() * 2).sum(-1).float(), r(3, 4)),
    "isnan": lambda: of(lambda x: torch.isnan(x).float() + torch.isinf(x).float(), r(3, 4)),
    "nan to num": lambda: of(lambda x: torch.nan_to_num(x / x.relu(), 1.0, 5.0, -5.0), r(3, 4)),
    "scalar tensors": lambda: of(lambda x: torch.tensor(3.0) * x + torch.tensor(2), r(3, 4)),
    "rsub": lambda: of(lambda x: 1 - x, r(3, 4)),
    "lerp": lambda: of(lambda x, y: torch.lerp(x, y, 0.3), r(3, 4), r(3, 4)),
    "addcmul": lambda: of(
        lambda x, y: torch.addcmul(x, x, y, value=0.5) + torch.addcdiv(x, x, y.abs() + 1, value=2),
        r(3, 4),
        r(3, 4),
    ),
    "alpha": lambda: of(
        lambda x, y: torch.add(x, y, alpha=2) - torch.sub(y, x, alpha=3), r(3), r(3)
    ),
}

REDUCTIONS = {
    "softmax": lambda: of(lambda x: x.softmax(1) + x.log_softmax(-1), r(2, 3, 4)),
    "softmin": lambda: of(lambda x: F.softmin(x, 1), r(2, 3, 4)),
    "variance": lambda: of(
        lambda x: (
            x.var(-1) + x.std(1, unbiased=False)[:, 0:1] + x.var((1, 2), keepdim=True)[:, :, 0]
        ),
        r(2, 3, 4),
    ),
    "var mean": lambda: of(lambda x: torch.var_mean(x, -1, unbiased=False), r(2, 3, 4)),
    "means": lambda: of(lambda x: x.mean() + x.mean(1) + x.sum(1) + x.sum(), r(2, 3, 4)),
    "extremes": lambda: of(
        lambda *inputs: (
            [
                (y.amax(axis), y.amin((0, axis)), *y.max(axis), *y.min(1), y.argmin(axis, True))
                for x in inputs
                for y in (x, x.relu(), x.double(), x.half(), x.isnan().float() - x)
                for axis in (1, 2)
            ]
            + [(x.max(), x.min(), x.argmax(), x.argmin(), *torch.aminmax(x)) for x in inputs]
        ),
        holed(9, 10, 33),
        torch.full((2, 3, 4), torch.nan),
        r(2, 3, 4),
    ),
    "product": lambda: of(lambda x: x.prod(1) + x.prod(), r(2, 3)),
    "norms": lambda: of(
        lambda x: x.norm(dim=-1) + x.norm(p=1, dim=-1) + torch.linalg.vector_norm(x) + x.norm(),
        r(2, 3, 4),
    ),
    "frobenius": lambda: of(torch.linalg.matrix_norm, r(2, 3, 4)),
    "norm inf": lambda: of(lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1), holed(9, 3)),
    "logsumexp": lambda: of(lambda x: x.logsumexp(1), r(2, 3, 4)),
    "any all": lambda: of(
        lambda x: ((x > 0).any(), (x > 0).all(), (x > 0).any(1), (x > -1).all(1)), r(2, 3)
    ),
    "cumulative": lambda: of(lambda x: (x.cumsum(1), x.cumprod(-1)), r(2, 3, 4)),
    "cumsum of integers": lambda: of(lambda x: (x != 0).int().cumsum(1).long(), ids(3, 2, 6)),
    "orders of equal numbers": lambda: of(
        lambda x, y: [
            (y > 0).sort(dim=1, stable=True),
            *(
                (
                    *(*z.sort(dim=1, stable=True), *z.sort(dim=0, stable=True, descending=True)),
                    *(z.topk(7, 1)[0], z.topk(7, 0, largest=False)[0], z.kthvalue(17, 1)[0]),
                    *(z.median(1)[0], z.nanmedian(0)[0], z.median(), z.nanmedian()),
                )
                for z in (x, x.double(), x.half(), x.relu(), y, y.short(), y.long())
            ),
        ],
        (2 * holed(20, 33)).round(),
        (r(20, 33) * 9).char(),
    ),
    "places in orders": lambda: of(
        lambda x: [
            (
                *(*y.sort(1), y.argsort(1, descending=True), *y.topk(3, 1)),
                *(*y.topk(2, 1, largest=False), *y.kthvalue(6, 1), *y.kthvalue(7, 1, True)),
                *(*y.median(1), *y.nanmedian(1)),
            )
            for y in (x, x.double(), x.half())
        ],
        torch.tensor([0, torch.nan, 2.5, torch.inf, -1.5, -torch.inf, 7])[r(9, 7).argsort(1)],
    ),
    "places of NaN": lambda: of(
        lambda x: (*x.median(1), x.nanmedian(1).values, *x[:1].nanmedian(1)),
        torch.tensor([[1.0, torch.nan, 3, torch.nan, 0], [torch.nan] * 5]),
    ),
    "count nonzero": lambda: of(lambda x: torch.count_nonzero(x > 0, 1), r(2, 7)),
    "cosine similarity": lambda: of(lambda x, y: F.cosine_similarity(x, y, 1), r(2, 7), r(2, 7)),
    "distances": lambda: of(torch.cdist, r(2, 5, 3), r(2, 4, 3)),
}

PRODUCTS = {
    "linear": lambda: net(nn.Linear(5, 6, bias=False), r(2, 3, 5)),
    "linear of a vector": lambda: net(nn.Linear(5, 6), r(5)),
    "bilinear layer": lambda: net(nn.Bilinear(3, 4, 5), r(2, 3), r(2, 4)),
    "einsum": lambda: of(
        lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y), r(1, 2, 3, 4), r(1, 2, 5, 4)
    ),
    "einsum moves": lambda: of(
        lambda x, w: torch.einsum("bchw,dc->bdhw", x, w), r(1, 3, 4, 5), r(6, 3)
    ),
    "einsum sums": lambda: of(lambda x, y: torch.einsum("nc,nkc->nk", x, y), r(2, 3), r(2, 4, 3)),
    "einsum three": lambda: of(
        lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z), r(2, 3), r(3, 4), r(4, 5)
    ),
    "einsum ellipsis": lambda: of(
        lambda x, y: torch.einsum("...i,...j->...ij", x, y), r(2, 3), r(2, 4)
    ),
    "einsum diagonal": lambda: of(lambda x: torch.einsum("bii->b", x), r(2, 3, 3)),
    "outer": lambda: of(torch.outer, r(3), r(4)),
    "bmm": lambda: of(torch.bmm, r(2, 3, 4), r(2, 4, 5)),
    "baddbmm": lambda: of(torch.baddbmm, r(2, 3, 5), r(2, 3, 4), r(2, 4, 5), beta=0.5, alpha=2),
    "addmm": lambda: of(torch.addmm, r(5), r(3, 4), r(4, 5), beta=0.5, alpha=2),
    "conv1d of gpt-2": lambda: of(
        lambda x, w, b: torch.addmm(b, x.view(-1, 4), w).view(2, 3, 5), r(2, 3, 4), r(4, 5), r(5)
    ),
    "matmul vectors": lambda: of(
        lambda x, y: (x @ y[:, 0], x[0] @ y, x[0] @ y[:, 0], torch.dot(x[0], y[:, 1])),
        r(3, 4),
        r(4, 5),
    ),
    "matmul broadcast": lambda: of(torch.matmul, r(2, 1, 3, 4), r(5, 4, 6)),
    "mv": lambda: of(torch.mv, r(3, 4), r(4)),
    "cross": lambda: of(lambda x, y: torch.cross(x, y, dim=1), r(2, 3), r(2, 3)),
    "tensordot": lambda: of(lambda x, y: torch.tensordot(x, y, 2), r(2, 3, 4), r(3, 4, 5)),
    "kron": lambda: of(torch.kron, r(2, 3), r(3, 2)),
    "integer matmul": lambda: of(lambda x, y: x @ y, ids(5, 3, 4), ids(5, 4, 2)),
    "trace": lambda: of(torch.trace, r(3, 3)),
}
