"""Sums and normalizations are as accurate as torch's, and functions have torch's special values."""

import math

import numpy as np
import onnx
import pytest
import scipy.special
import torch
from chameleon_core.plugin_api import ConfigError
from chameleon_networks._backends.onnx_networks import prepare
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from chameleon_networks._importers.torch.programs import export_module
from marks import full
from torch.nn import functional as F  # noqa: N812 - as everywhere

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers
from .networks import arrays
from .torch_networks import Of

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "variance": torch.var,
    "deviation": lambda x, axes: torch.std(x, axes, correction=0),
    "norm": lambda x, axes: torch.linalg.vector_norm(x, 2, axes),
    "log of sum": torch.logsumexp,
}
"""Functions of a tensor and the axes over which they reduce."""

NORMS = {
    "layer": lambda x: F.layer_norm(x, x.shape[2:]),
    "group": lambda x: F.group_norm(x, 2),
    "scaled group": lambda x: F.group_norm(x, 2, torch.full((x.shape[1],), 3.0, dtype=x.dtype)),
    "instance": F.instance_norm,
    "batch": lambda x: F.batch_norm(x, None, None, training=True),
    "root mean square": lambda x: F.rms_norm(x, x.shape[2:]),
    "softmax": lambda x: x.softmax(1),
}

MEANS = (0.0, 1.0, 100.0, 1e4)
CONSTANTS = (7.3, 255.0, 1000.3)
DRAWS = 4


def _compiled(folder, functions, example):
    """Functions of one tensor as one network."""
    network = Of(lambda x: [function(x) for function in functions.values()])
    module = torch_graph(export_module(network, (example,), "accuracy").program).module
    return network, deliverer(folder)(module).run


def _inaccurate(folder, functions, shape):
    """Functions whose error is above twice that of torch and two units of the largest number."""
    torch.manual_seed(0)
    # Which of two orders of additions errs more in one sum is chance.
    draws = [torch.randn(shape) for _ in range(DRAWS)]
    inputs = {f"mean {mean}": [numbers + mean for numbers in draws] for mean in MEANS}
    inputs["deviation 100"] = [numbers * 100 for numbers in draws]
    inputs |= {f"constant {number}": [torch.full(shape, number)] for number in CONSTANTS}
    network, run = _compiled(folder, functions, draws[0])
    faults = {}
    for kind, examples in inputs.items():
        largest = max(np.spacing(np.float32(x.abs().max())) for x in examples)
        mine, torchs = np.transpose([_errors(network, run, x) for x in examples], (1, 2, 0))
        for name, error, theirs in zip(
            functions, mine.max(axis=1), torchs.max(axis=1), strict=True
        ):
            if not error <= max(2 * theirs, 2 * largest):
                faults[name, kind] = error, theirs
    return faults


def _errors(network, run, x):
    """The largest error of each function, and torch's, shape (2, functions)."""
    wanted, exact = arrays(network(x)), arrays(network(x.double()))
    return [
        [np.abs(numbers - right).max() for numbers, right in zip(results, exact, strict=True)]
        for results in (run(x.numpy()), wanted)
    ]


def _over_axes(rank):
    """The reductions over each axis, over pairs of axes, and over all."""
    groups = [[axis] for axis in range(rank)] + [[*range(end)] for end in range(2, rank + 1)]
    return {
        f"{name} {axes}": lambda x, reduce=reduce, axes=axes: reduce(x, axes)
        for name, reduce in REDUCTIONS.items()
        for axes in groups
    }


@pytest.mark.parametrize("shape", [full((3000,)), (1100, 37), full((40, 30, 33))])
def test_reductions_are_as_accurate_as_torch(tmp_path, shape):
    assert _inaccurate(tmp_path, _over_axes(len(shape)), shape) == {}


@pytest.mark.full
@pytest.mark.parametrize("shape", [(10_000_000,), (300_000, 20), (20, 300_000), (30, 3000, 30)])
def test_long_reductions_are_as_accurate_as_torch(tmp_path, shape):
    assert _inaccurate(tmp_path, _over_axes(len(shape)), shape) == {}


@pytest.mark.parametrize("shape", [(2, 6, 33, 33), full((3, 4, 1000))])
def test_normalizations_are_as_accurate_as_torch(tmp_path, shape):
    assert _inaccurate(tmp_path, NORMS, shape) == {}


@pytest.mark.full
@pytest.mark.parametrize("shape", [(1, 4, 1000, 1000), (2, 64, 100, 100)])
def test_long_normalizations_are_as_accurate_as_torch(tmp_path, shape):
    assert _inaccurate(tmp_path, NORMS, shape) == {}


@pytest.mark.full
def test_an_image_in_channels_last_is_normalized_as_accurately(tmp_path):
    """The sums of a channel are then apart in memory."""
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 6, 1)
    network = torch.nn.Sequential(layer, torch.nn.GroupNorm(2, 6), torch.nn.InstanceNorm2d(6))
    layer.bias.data += 1000
    x = torch.randn(1, 3, 70, 70)
    module = torch_graph(export_module(network.eval(), (x,), "image").program).module
    with torch.no_grad():
        [wanted, exact] = [arrays(network.to(x.dtype)(x))[0] for x in (x, x.double())]
    got = deliverer(tmp_path)(module, layout="NHWC").run(x.numpy())
    assert np.abs(got - exact).max() <= 2 * np.abs(wanted - exact).max()


@pytest.mark.parametrize("axis", [0, full(1)])
def test_running_sums_are_those_of_torch(tmp_path, axis):
    torch.manual_seed(0)
    x = torch.rand(16_000, 3) * 0.2
    x = x if axis == 0 else x.T.contiguous()
    functions = {
        "sum": lambda x: x.cumsum(axis),
        "phase": lambda x: torch.sin(x.cumsum(axis)),
        "product": lambda x: (1 + 1e-4 * x).cumprod(axis),
    }
    network, run = _compiled(tmp_path, functions, x)
    for got, wanted in zip(run(x.numpy()), arrays(network(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-7, atol=2e-7)


NUMBERS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-8, -1e-8, 3e38, -3e38, math.inf, -math.inf, math.nan),
    *(7.3, -7.3, 1e9, -1e9, 123456789.0, 3e8, 0.1, 20.0, -20.0),
)
OTHERS = (7.0, 11.0, 0.1, -0.1, math.inf, -math.inf, math.nan, 0.0, 3e38)

FUNCTIONS = {
    **{
        f"leaky {slope}": lambda x, _, slope=slope: F.leaky_relu(x, slope)
        for slope in (0.01, 0.0, -0.5, 2.0)
    },
    **{
        f"clamp {bounds}": lambda x, _, bounds=bounds: x.clamp(*bounds)
        for bounds in ((1.0, -1.0), (math.nan, 1.0), (0.0, math.nan), (None, 0.5), (-1.0, 1.0))
    },
    "largest": lambda x, _: torch.clamp_max(x, math.nan),
    "remainder": torch.remainder,
    "remainder of 7": lambda x, _: x % 7.0,
    "remainder of -7": lambda x, _: x % -7.0,
    "remainder of infinity": lambda x, _: x % math.inf,
    "remainder of a number": lambda _, y: 5.0 % y,
    "quotient": lambda x, y: x // y,
    "quotient of a number": lambda x, _: x // 0.1,
    "rounded quotient": lambda x, _: torch.div(x, -0.1, rounding_mode="floor"),
    "hypot": torch.hypot,
    "small numbers": lambda x, _: torch.expm1(x) + torch.log1p(x) + F.elu(x),
    "logarithm of a sum": lambda x, _: torch.log(1 + x),
}


@pytest.mark.full
def test_long_signals_are_interpolated_at_torchs_places(tmp_path):
    """A place beyond 65,536 that is rounded twice is off by a hundredth of a pixel."""
    functions = {
        "linear": lambda x: F.interpolate(x, 50_000, mode="linear"),
        "by a factor": lambda x: F.interpolate(x, scale_factor=0.7, mode="linear"),
        "cubic": lambda x: F.interpolate(x[None], (1, 50_000), mode="bicubic"),
        "volume": lambda x: F.interpolate(x[None, None], (1, 1, 50_000), mode="trilinear"),
    }
    x = torch.randn(1, 1, 70_000)
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_deviations_of_numbers_without_a_variance(tmp_path, scale):
    """Their variance is 0 or infinite in float32."""
    functions = {
        "deviation": lambda x: x.std(),
        "of rows": lambda x: x.std(1, correction=0, keepdim=True),
        "with mean": lambda x: torch.stack(torch.std_mean(x, 0)),
    }
    x = torch.randn(4, 9) * scale
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, err_msg=name)


def test_factorizations_name_the_step_that_failed(tmp_path):
    functions = {
        "cholesky": lambda x: torch.linalg.cholesky_ex(x @ x.mT - 5 * x.mT @ x)[1],
        "lu": lambda x: torch.linalg.lu_factor_ex(x)[2],
        "inverse": lambda x: torch.linalg.inv_ex(x)[1],
        "solution": lambda x: torch.linalg.solve_ex(x, x)[1],
    }
    x = torch.stack([torch.eye(3), torch.eye(3).roll(1, 0), torch.ones(3, 3), torch.zeros(3, 3)])
    network, run = _compiled(tmp_path, functions, x)
    wanted = arrays(network(x))
    assert [set(numbers.tolist()) for numbers in wanted] == [{1}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}]
    for name, got, numbers in zip(functions, run(x.numpy()), wanted, strict=True):
        np.testing.assert_array_equal(got, numbers, err_msg=name)


_WHOLE = (3, -3, 2, 7, -1, 0, 1, 10, 5, -2, 6)
_COUNTS = (39, 20, 62, 25, 99, 0, 5, 18, -1, 63, 70)


@pytest.mark.parametrize(
    ("dtype", "tuned"),
    [
        ("int32", {"guesses": True}),
        full("int64", {}),
        full("int8", {"guesses": True}),
        full("uint8", {"seed": 0}),
    ],
)
def test_powers_and_shifts_of_integers_are_exact(tmp_path, dtype, tuned):
    kind = getattr(torch, dtype)
    functions = {
        "power": torch.pow,
        "of a number": lambda _, y: 3 ** y.abs(),
        "left": lambda x, y: x << y,
        "right": lambda x, y: x >> y,
        "by a number": lambda x, _: (x << 3) + (x >> 100),
    }
    x, y = (torch.tensor(numbers).repeat(3).to(kind) for numbers in (_WHOLE, _COUNTS))
    network = Of(lambda x, y: [function(x, y) for function in functions.values()])
    module = torch_graph(export_module(network, (x, y), "powers").program).module
    got = deliverer(tmp_path)(module, **tuned).run(x.numpy(), y.numpy())
    for name, ours, wanted in zip(functions, got, arrays(network(x, y)), strict=True):
        np.testing.assert_array_equal(ours, wanted, err_msg=name)


def test_onnx_powers_of_integers_are_exact():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 18]>
        net (int64[4] x, int64[4] y) => (int64[4] z) { z = Pow(x, y) }""")
    x, y = np.array([3, 7, -5, 2]), np.array([39, 20, 25, 62])
    [z] = prepare(model).run([x, y])
    np.testing.assert_array_equal(z, x**y)


def test_special_functions_of_integers_are_those_of_floats(tmp_path):
    special = torch.special
    functions = {
        "scaled": lambda x: special.i0e(x) + special.erfcx(x) + special.bessel_j0(x),
        "polynomial": lambda x: special.shifted_chebyshev_polynomial_u(x, torch.tensor(2)),
    }
    x = torch.tensor([-(2**63), 2**62, 2**40, -3, 0, 1, 2])
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6, err_msg=name)


_SPECIAL = {
    **{
        name: getattr(torch.special, name)
        for name in (
            *("i0e", "i1e", "i1"),
            *("modified_bessel_i0", "modified_bessel_k0", "modified_bessel_k1"),
            *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0"),
            *("gammaln", "digamma", "erfinv", "ndtri", "erfc", "erfcx", "log_ndtr"),
        )
    },
    **{f"polygamma {n}": lambda x, n=n: torch.special.polygamma(n, x.abs() + 0.01) for n in (2, 4)},
}


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "error"), [("float64", 2e-13), ("float32", 2e-5)])
def test_special_functions_have_the_digits_of_their_dtype(tmp_path, dtype, error):
    """Torch's float64 is the reference of both dtypes."""
    torch.manual_seed(0)
    parts = [torch.rand(300), torch.rand(300) * 6 - 3, torch.rand(300) * 60 - 30]
    marks = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 1e-5, 1.5, 2.0, 24.0, -24.0, 100.0])
    x = torch.cat([*parts, marks]).to(getattr(torch, dtype))
    names = ("j0", "j1", "y0", "y1")  # torch's own lose half of their digits in float64
    functions = _SPECIAL | {name: getattr(torch.special, f"bessel_{name}") for name in names}
    network, run = _compiled(tmp_path, functions, x)
    exact = arrays(network(x.double()))[: len(_SPECIAL)]
    exact += [getattr(scipy.special, name)(x.double().numpy()) for name in names]
    for name, got, wanted in zip(functions, run(x.numpy()), exact, strict=True):
        assert got.dtype == dtype
        with np.errstate(over="ignore"):
            rounded = wanted.astype(got.dtype)
        np.testing.assert_allclose(got, rounded, rtol=error, atol=error, err_msg=name)


_DEGREES = (0.0, 1.0, 1.9, 2.0, 3.0, 6.0, -2.0, math.nan, math.inf, -math.inf, 2.0**63, 1e30)
_EDGES = (-3.0, 0.0, 0.0, 2.5, math.inf)
_HARD = {
    **{
        f"{shift}{kind}": getattr(torch.special, f"{shift}chebyshev_polynomial_{kind}")
        for kind in "tuvw"
        for shift in ("", "shifted_")
    },
    "places": lambda x, _: torch.bucketize(x, torch.tensor(_EDGES)),
    "places after": lambda x, _: torch.bucketize(x, torch.tensor(_EDGES), right=True),
    "places in disorder": lambda x, y: torch.searchsorted(y[:6].clone(), x),
    "places in rows": lambda x, y: torch.searchsorted(y.reshape(3, -1), x[:6].reshape(3, -1)),
    "trigamma": lambda x, _: torch.special.polygamma(1, x),
    "fourth derivative": lambda x, _: torch.special.polygamma(4, x),
    "log gamma": lambda x, _: torch.lgamma(x),
}


@pytest.mark.full
def test_functions_of_hard_numbers_are_those_of_torch(tmp_path):
    """Torch leaves polynomials of NaN open from degree 2 on, and some that overflow are NaN."""
    numbers = [*NUMBERS, 1e-40, -1e-40, 3e-45, 0.3, -0.7, 2.0, 1e20]
    x, n = torch.tensor(numbers).repeat(len(_DEGREES)), torch.tensor(_DEGREES)
    n = n.repeat_interleave(len(numbers))
    network = Of(lambda x, n: [function(x, n) for function in _HARD.values()])
    module = torch_graph(export_module(network, (x, n), "hard").program).module
    got = deliverer(tmp_path)(module).run(x.numpy(), n.numpy())
    open_cases = (x.isnan() & (n >= 2)).numpy()
    for name, ours, wanted in zip(_HARD, got, arrays(network(x, n)), strict=True):
        overflows = ~np.isfinite(ours) & ~np.isfinite(wanted)
        if "places" not in name and ours.shape == open_cases.shape:
            overflows |= open_cases
        pair = (np.where(overflows, 0, each) for each in (ours, wanted))
        np.testing.assert_allclose(*pair, rtol=3e-4, atol=1e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margin_losses_leave_out_nan(tmp_path, reduction):
    labels = torch.tensor([[1, 3, -1, 0], [2, -1, 1, 1], [-1, 0, 0, 0]])
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0])
    functions = {
        "labels": lambda x: F.multilabel_margin_loss(x, labels, reduction=reduction),
        "labels of one": lambda x: F.multilabel_margin_loss(x[0], labels[0], reduction=reduction),
        "one label": lambda x: F.multi_margin_loss(
            x, labels[:2].T[:3, 0].abs(), 2, 0.5, weight, reduction=reduction
        ),
        "of one": lambda x: F.multi_margin_loss(x[1], torch.tensor(2), reduction=reduction),
        "module": torch.nn.MultiMarginLoss(size_average=reduction != "sum"),
    }
    functions["module"] = lambda x, loss=functions["module"]: loss(x, torch.tensor([0, 1, 3]))
    x = torch.randn(3, 4)
    x[0, 2] = x[1, 3] = math.nan
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        assert got.shape == wanted.shape, name
        np.testing.assert_allclose(got, wanted, rtol=1e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1e-36), ("float32", 1e30), ("float64", 1.0)]
)
def test_factorizations_of_tiny_and_huge_numbers(tmp_path, dtype, scale):
    """Their squares are 0 or infinite in float32."""
    functions = {
        "reflections": lambda x: torch.geqrf(x)[1],
        "orthogonal": lambda x: torch.linalg.qr(x)[0],
        "triangle": lambda x: torch.linalg.qr(x)[1],
        "singular values": lambda x: torch.linalg.svdvals(x[:4]),
        "rank": lambda x: torch.linalg.matrix_rank(x[:4]),
        "solution": lambda x: torch.linalg.lstsq(x, x.flip(0)).solution,
        "solution of full rank": lambda x: torch.linalg.lstsq(x, x.flip(0), driver="gels").solution,
        "inverse": lambda x: torch.linalg.inv(x[:4] / scale),
    }
    torch.manual_seed(0)
    x = torch.randn(5, 4).to(getattr(torch, dtype)) * scale
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        limit = 1e-10 if dtype == "float64" else 1e-3
        least = limit * np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(got, wanted, rtol=limit, atol=least, err_msg=name)


def test_a_correlation_of_integers_is_that_of_torch(tmp_path):
    """The sums of integers wrap."""
    functions = {"correlation": torch.corrcoef, "covariance": lambda x: torch.cov(x // 2**40)}
    x = torch.tensor([[2**62, 2**62 + 2**50, -(2**61), 5], [2**62, -(2**62), 2**62, 2**61]])
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, err_msg=name)


def test_a_convolution_of_integers_is_refused():
    convolution = Of(lambda x: F.conv1d(x, torch.ones(1, 1, 3, dtype=x.dtype)))
    program = export_module(convolution, (torch.ones(1, 1, 9, dtype=torch.int64),), "whole").program
    with pytest.raises(ConfigError, match="gives it another dtype than torch"):
        torch_graph(program)


def test_functions_have_torchs_special_values(tmp_path):
    x, y = (torch.tensor(numbers) for numbers in (NUMBERS, OTHERS))
    x, y = x.repeat(len(y)), y.repeat_interleave(len(x))
    # Torch has no remainder if the quotient overflows.
    keep = ~((x / y).isinf() & (y != 0) & x.isfinite())
    x, y = x[keep], y[keep]
    network = Of(lambda x, y: [function(x, y) for function in FUNCTIONS.values()])
    module = torch_graph(export_module(network, (x, y), "special").program).module
    got = deliverer(tmp_path)(module).run(x.numpy(), y.numpy())
    for name, ours, wanted in zip(FUNCTIONS, got, arrays(network(x, y)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-6, err_msg=name)


_EXACT = {
    **{
        name: getattr(torch, name)
        for name in ("exp2", "expm1", "log1p", "tanh", "sinh", "atan", "asinh", "atanh", "sign")
    },
    **{f"power {number}": lambda x, number=number: x**number for number in (0.5, -0.5)},
    "atan of two": lambda x: torch.atan2(x, x + 1),
    "infinite": lambda x: torch.lgamma(-x.square() - 1e30),
    "elu": F.elu,
    "softplus": F.softplus,
}
_POINTS = (
    *(*NUMBERS[:13], 2.5, 1e-30, -1e-30, 5.3, -5.3, 20.0, -20.0, 88.0, -88.0, 100.0, -100.0),
    *(127.0, 127.9, 128.0, 126.5, -126.3, -150.0),
)


def _assert_exact(got, wanted, units, name):
    """Check numbers, and the signs of zeros, up to some units in the last place."""
    wide = wanted.dtype == np.float64
    limits = np.finfo(wanted.dtype)
    least = 4 * float(limits.tiny)
    ours, torchs = (numbers.astype(np.float64) for numbers in (got, wanted))
    np.testing.assert_allclose(
        ours, torchs, rtol=units * float(limits.eps), atol=0 if wide else least, err_msg=name
    )
    zeros = (got == 0) & (wanted == 0)
    assert (np.signbit(got) == np.signbit(wanted))[zeros].all(), name


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_functions_have_torchs_digits(tmp_path, dtype):
    x = torch.tensor(_POINTS, dtype=getattr(torch, dtype))
    network, run = _compiled(tmp_path, _EXACT, x)
    for name, got, wanted in zip(_EXACT, run(x.numpy()), arrays(network(x)), strict=True):
        _assert_exact(got, wanted, 16, name)


def test_tails_have_torchs_digits(tmp_path):
    """The error function is close to 1, and digamma has a pole with two signs."""
    functions = {"erfc": torch.erfc, "pole": lambda x: torch.digamma(x * 0.0)}
    x = torch.tensor([*_POINTS, *torch.arange(0.0, 9.0, 0.1)])
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        _assert_exact(got, wanted, 64, name)


@pytest.mark.full
def test_functions_of_halves_do_not_overflow(tmp_path):
    functions = {"log gamma": torch.lgamma, "error": torch.special.erfinv}
    x = torch.tensor([0.7, 2.5, 9.0, 60.0, 0.1], dtype=torch.float16)
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        _assert_exact(got, wanted, 4, name)


def test_casts_wrap_numbers_that_narrow_integers_lack(tmp_path):
    dtypes = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    functions = {str(dtype): lambda x, dtype=dtype: x.to(dtype) for dtype in dtypes}
    x = torch.tensor([*NUMBERS, 128.0, 255.0, 256.0, 300.0, -129.0, 70000.0, -0.9, -1.5])
    network, run = _compiled(tmp_path, functions, x)
    for name, got, wanted in zip(functions, run(x.numpy()), arrays(network(x)), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_onnx_normalizes_numbers_far_from_zero():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        net (float[1, 6, 33, 33] x) => (float[1, 6, 33, 33] a, float[1, 6, 33, 33] b,
                                         float[1, 6, 33, 33] c, float[1, 6, 33, 33] d)
            <float[1] unit = {1}, float[6] one = {1, 1, 1, 1, 1, 1},
             float[6] zero = {0, 0, 0, 0, 0, 0}> {
            a = GroupNormalization <num_groups = 2> (x, one, zero)
            b = InstanceNormalization (x, one, zero)
            c, mean, variance = BatchNormalization <training_mode = 1> (x, one, zero, zero, one)
            d, average, factor = LayerNormalization <axis = 0> (x, unit)
        }""")
    network = prepare(model)
    x = np.random.default_rng(0).standard_normal((1, 6, 33, 33)).astype(np.float32) + 1000
    both = network.run(x), network.run(np.full_like(x, 1000.3))
    for groups, *got in zip((2, 6, 6, 1), *both, strict=True):
        wide = x.reshape(groups, -1).astype(np.float64)
        apart = wide - wide.mean(1, keepdims=True)
        wanted = (apart / np.sqrt(wide.var(1, keepdims=True) + 1e-5)).reshape(x.shape)
        np.testing.assert_allclose(got[0], wanted, atol=1e-4)
        np.testing.assert_allclose(got[1], 0, atol=0.02)


_TORCHS = {
    "half means": (
        lambda x: (x.mean(), x.var(), x.norm(), (x / 3000).cumsum(0), F.avg_pool1d(x[None], 50)),
        (torch.linspace(2900, 3100, 500).half(),),
    ),
    "products of integers": (
        lambda x: (x.prod(), x.prod(0), x.bool().prod(), x + 1000),
        (torch.tensor([3, 200, 7], dtype=torch.uint8),),
    ),
    "integers and floats": (
        lambda x: (x <= 16777216.0, x == 16777216.0, x != 16777216.0, x < 0.5),
        (torch.tensor([2**24 + 1, 0, 2**24 + 3]),),
    ),
    "powers of two": (
        lambda x, n: (*torch.frexp(x), torch.ldexp(x, n)),
        (torch.tensor([1e-40, 3e38, math.inf, 0.0]), torch.tensor([128, -250, -200, 200])),
    ),
    "large Bessel": (lambda x: (torch.special.i0(x),), (torch.tensor([3e38, -3e38, 1.0]),)),
    "sizes of complex numbers": (
        lambda x: (torch.fft.rfft(x).abs(), torch.view_as_real(torch.fft.rfft(x).reciprocal())),
        (torch.arange(1, 8) ** 2 * 1e25,),
    ),
    "empty bags beside NaN": (
        lambda w, i, ends: (F.embedding_bag(i, w, ends, mode="mean"),),
        (
            torch.tensor([[1.0, math.nan], [2.0, 3.0], [4.0, 5.0]]),
            *map(torch.tensor, ([1, 2, 0], [0, 0, 2])),
        ),
    ),
    "distances of NaN": (
        lambda x: (*(torch.cdist(x, x, p) for p in (0.0, 1.0, math.inf)), torch.pdist(x, math.inf)),
        (torch.tensor([[1.0, math.nan], [2.0, 0.1], [math.nan, math.nan], [math.inf, 3.0]]),),
    ),
    "reflections that overflow": (
        torch.linalg.householder_product,
        (torch.full((6, 5), 1000.0), torch.full((5,), 1000.0)),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", _TORCHS)
def test_special_numbers_are_torchs(tmp_path, name):
    function, inputs = _TORCHS[name]
    network = Of(function)
    module = torch_graph(export_module(network, inputs, name).program).module
    got = deliverer(tmp_path)(module).run(*(each.numpy() for each in inputs))
    wanted = arrays(network(*inputs))
    for one, other in zip(got if isinstance(got, list | tuple) else [got], wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-3)


WIDE = {
    "resized": lambda x: F.interpolate(x, size=(13, 11), mode="bilinear"),
    "resized corners": lambda x: F.interpolate(x, (13, 11), mode="bilinear", align_corners=True),
    "smooth": lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True),
    "spectrum": lambda x: torch.view_as_real(torch.fft.rfft(x)),
}


def test_float64_has_its_digits(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(1, 2, 9, 7, dtype=torch.float64)
    network, run = _compiled(tmp_path, WIDE, x)
    for name, got, wanted in zip(WIDE, run(x.numpy()), network(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14, err_msg=name)


def test_onnx_resizes_float64_at_exact_places():
    text = """(double[1, 1, 8, 1] x) => (double[1, 1, 12, 1] y) {
        s = Constant<value = float[4] {1.0, 1.0, 1.5, 1.0}>()
        y = Resize<mode = "linear">(x, , s)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 19]> net {text}')
    x = np.random.default_rng(0).standard_normal(8)
    [y] = prepare(model).run([x.reshape(1, 1, 8, 1)])
    wanted = np.interp((np.arange(12) + 0.5) / 1.5 - 0.5, np.arange(8), x)
    np.testing.assert_allclose(y.reshape(-1), wanted, rtol=0, atol=1e-15)
