"""Element-wise operators and special functions of torch.

Abramowitz and Stegun, Handbook of Mathematical Functions: error function (7.1.4), Bessel (9.6.10 to
9.6.13, 9.6.16, 9.6.24), digamma (6.3.18) and Chebyshev (22.3.15, 22.3.16).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch

_ATEN = torch.ops.aten


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is computed in float32 for integers and tensors of 16 bits, as in torch."""

    def computed(*args: Any) -> Any:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        floats = [x.dtype for x in tensors if x.is_floating_point()] or [torch.float32]
        own = reduce(torch.promote_types, floats)
        wide = torch.promote_types(own, torch.float32)
        if all(x.dtype is wide for x in tensors):
            return function(*args)
        converted = (x.to(wide) if isinstance(x, torch.Tensor) else x for x in args)
        return function(*converted).to(own)

    return computed


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    return scale * torch.where(x > 0, x, alpha * torch.expm1(x * input_scale))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


def _signbit(x: Any) -> Any:
    """``signbit``, which is also set for -0.0. For NaN, the result is always False."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def _copysign(x: Any, y: Any) -> Any:
    y = torch.full((), y, dtype=torch.float32) if isinstance(y, int | float) else y
    x = x if x.is_floating_point() else x.float()
    return torch.where(_signbit(y), -x.abs(), x.abs())


def _frexp(x: Any) -> Any:
    """``frexp``: a fraction of magnitude 0.5 to 1, and a power of two."""
    # Powers of two beside the smallest and largest numbers are subnormal or infinite.
    tiny, huge = x.abs() < 2.0**-100, x.abs() > 2.0**100
    ordinary = (x != 0) & x.isfinite()
    x = torch.where(tiny, x * 2.0**64, torch.where(huge, x * 2.0**-64, x))
    magnitude = torch.where(ordinary, x.abs(), 1.0)
    power = magnitude.log2().floor() + 1
    fraction = magnitude * torch.exp2(-power)
    power = torch.where(fraction >= 1, power + 1, torch.where(2 * fraction < 1, power - 1, power))
    exact = torch.where(ordinary, x * torch.exp2(-power), x)
    power = torch.where(tiny, power - 64, torch.where(huge, power + 64, power))
    return exact, torch.where(ordinary, power, 0).to(torch.int32)


def _ldexp(x: Any, exponent: Any) -> Any:
    """``ldexp`` in four steps, because a power of two may be infinite or zero by itself."""
    if not x.is_floating_point():  # torch multiplies by that power, which may be subnormal
        exponent = exponent.to(torch.float32)
        half = (exponent / 2).trunc()
        return x.to(torch.float32) * (torch.exp2(half) * torch.exp2(exponent - half))
    dtype = x.dtype
    most = 2200.0 if dtype is torch.float64 else 300.0
    exponent = exponent.to(dtype).clamp(-most, most)
    part = (exponent / 4).trunc()
    power = torch.exp2(part)
    return x.to(dtype) * power * power * power * torch.exp2(exponent - 3 * part)


def _angle(x: Any) -> Any:
    """``angle`` of real numbers. Those of complex numbers are computed from their parts."""
    if x.is_complex():
        return NotImplemented
    return torch.where(x < 0, math.pi, torch.where(x.isnan(), x, 0.0))


def _wrapping_remainder(x: Any, y: Any) -> tuple[Any, Any]:
    """The exact remainder with the sign of x, and whether the sign of y differs."""
    rest = torch.fmod(x, y)
    return rest, ((rest > 0) & (y < 0)) | ((rest < 0) & (y > 0))


def _floats(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Two operands as floating-point tensors, or None if their quotient is an integer."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return None
    y = y if isinstance(y, torch.Tensor) else torch.full((), y, dtype=dtype)
    return x.to(dtype), y.to(dtype)


def _remainder(x: Any, y: Any) -> Any:
    """``remainder``; TVM's rounds the quotient, which is wrong if the quotient is large."""
    operands = _floats(x, y)
    if operands is None:
        return NotImplemented
    rest, wraps = _wrapping_remainder(*operands)
    return torch.where(wraps, rest + operands[1], rest)


def _floor_divide(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Any:
    """``floor_divide`` by the exact remainder, as in torch and Python."""
    operands = _floats(x, y)
    if operands is None or rounding_mode != "floor":
        return NotImplemented
    x, y = operands
    rest, wraps = _wrapping_remainder(x, y)
    quotient = (x - rest) / y - wraps.to(x.dtype)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)  # noqa: PLR2004 - it rounds
    whole = torch.where(quotient == 0, torch.trunc(x / y), whole)
    return torch.where(y == 0, x / y, whole)


def _hypot(x: Any, y: Any) -> Any:
    """``hypot``, scaled so that no square overflows or vanishes; infinite even beside NaN."""
    x, y = x.abs(), y.abs()
    most, least = torch.maximum(x, y), torch.minimum(x, y)
    ratio = least / torch.where(most == 0, 1.0, most)
    infinite = (x == math.inf) | (y == math.inf)
    return torch.where(infinite, math.inf, most * torch.sqrt(1 + ratio * ratio))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial by Horner's scheme. The coefficients begin with the constant."""
    *others, total = coefficients
    for coefficient in reversed(others):
        total = total * x + coefficient
    return total


def _piecewise(x: Any, limit: float, near: Any, far: Any) -> Any:
    """A function of abs(x): ``near`` up to a limit, ``far`` above. Each gets only x of its side."""
    x = x.abs()
    return torch.where(x <= limit, near(x.clamp(max=limit)), far(x.clamp(min=limit)))


def _series(t: Any, order: int, weight: Callable[[int], float] = lambda _: 1.0) -> Any:
    """The sum of ``weight(k) * t**k / (k! * (k + order)!)``, exact in float64 for t up to 144."""
    total = torch.full_like(t, weight(_TERMS))
    for k in reversed(range(_TERMS)):
        total = weight(k) + total * t / ((k + 1) * (k + 1 + order))
    return total


_TERMS = 40


def _gaussian_integral(x: Any, function: Callable[[float], Any]) -> Any:
    """The integral of ``2 * exp(-u**2) * function(u**2)`` over u from 0, by the trapezoidal rule.

    Its error falls exponentially with the distance of the function's poles, 1.4 at least. See
    Trefethen and Weideman, The exponentially convergent trapezoidal rule, 2014, section 5.
    """
    step, count = (0.25, 25) if x.dtype is torch.float64 else (0.5, 10)
    squares = [(step * place) ** 2 for place in range(1, count)]
    return step * sum((2.0 * math.exp(-u) * function(u) for u in squares), function(0.0))


def _i_near(order: int, x: Any) -> Any:
    value = _series(x * x / 4.0, order)
    return value * x / 2.0 if order else value


def _i_scaled(order: int, x: Any) -> Any:
    """``exp(-|x|) I(x)``."""

    def far(x: Any) -> Any:
        cosine = (lambda u: 1.0 - u / x) if order else (lambda _: 1.0)
        return _gaussian_integral(x, lambda u: cosine(u) / (2.0 * x - u).sqrt()) / math.pi

    result = _piecewise(x, 24.0, lambda x: torch.exp(-x) * _i_near(order, x), far)
    return torch.where(x < 0, -result, result) if order else result


def _bessel_i(order: int, x: Any) -> Any:
    half = (0.5 * x.abs()).exp()  # two factors overflow later than one
    value = _i_scaled(order, x) * half * half
    infinite = (x if order else x.abs()) * math.inf
    return torch.where(x.abs() > 1e3, infinite, value)  # noqa: PLR2004 - also no float64


def _k_near(order: int, x: Any) -> Any:
    digamma = [-_EULER + math.fsum(1 / step for step in range(1, k)) for k in range(1, _TERMS + 3)]
    logarithm, t = (x / 2.0).log() * _i_near(order, x), x * x / 4.0
    if order == 0:
        return _series(t, 0, lambda k: digamma[k]) - logarithm
    return 1.0 / x + logarithm - x / 4.0 * _series(t, 1, lambda k: digamma[k] + digamma[k + 1])


_EULER = 0.57721566490153286061


def _bessel_k(order: int, x: Any, *, scaled: bool = False) -> Any:
    def near(x: Any) -> Any:
        return _k_near(order, x) * x.exp() if scaled else _k_near(order, x)

    def far(x: Any) -> Any:
        cosine = (lambda u: 1.0 + u / x) if order else (lambda _: 1.0)
        value = _gaussian_integral(x, lambda u: cosine(u) / (2.0 * x + u).sqrt())
        return value if scaled else value * (-x).exp()

    value = _piecewise(x, 1.0, near, far)
    return torch.where(x > 0, value, torch.where(x == 0, math.inf, math.nan))


def _spherical_j0(x: Any) -> Any:
    value = torch.sin(x) / torch.where(x == 0, 1.0, x)
    return torch.where(x == 0, 1.0, torch.where(x.abs() == math.inf, 0.0, value))


_SHIFT = 8
"""Number of steps of the recurrences of digamma and its derivatives, after which their series are
exact in float64."""


def _digamma(x: Any) -> Any:
    reflected = x < 0.5  # noqa: PLR2004 - the reflection formula is for x < 1/2
    value = _digamma_from_half(torch.where(reflected, 1.0 - x, x))
    turn = x - x.round()  # the difference is exact near a pole
    value = torch.where(reflected, value - math.pi / torch.tan(math.pi * turn), value)
    poles = torch.where(x == 0, -1.0 / x, math.nan)
    return torch.where((x <= 0) & (x == x.round()), poles, value)


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _digamma_from_half(x: Any) -> Any:
    y = x + _SHIFT
    series = [0.0, *(number / (2 * k) for k, number in enumerate(_BERNOULLI, 1))]
    value = y.log() - 0.5 / y - _polynomial(1 / (y * y), series)
    for step in range(_SHIFT):
        value = value - 1.0 / (x + step)
    return value


def _polygamma(order: int, x: Any) -> Any:
    """Derivatives of digamma, by 6.4.7 and 6.4.10 and the Euler-Maclaurin formula."""
    if order == 0:
        return _digamma(x)
    reflected = x < 0.5  # noqa: PLR2004 - the reflection formula is for x < 1/2
    value = _polygamma_from_half(order, torch.where(reflected, 1.0 - x, x))
    turn = x - x.round()
    # The cosine as a sine, which is more exact at a quarter of a turn.
    sine, cosine = torch.sin(math.pi * turn), torch.sin(math.pi * (0.5 - turn.abs()))
    cotangent = cosine / sine
    wave = math.pi ** (order + 1) * _polynomial(cotangent, _derivative_of_cotangent(order))
    value = torch.where(reflected, (-1) ** order * value - wave, value)
    poles = (x <= 0) & (x == x.round())
    if order == 1:  # as in torch, whose sine is not 0 there
        return torch.where(poles, (math.pi / torch.sin(math.pi * x)) ** 2, value)
    value = torch.where(poles, -((-1) ** order) * math.inf, value)
    return torch.where(x == math.inf, math.nan, value)  # as in torch


def _derivative_of_cotangent(order: int) -> list[float]:
    """The coefficients of a derivative of the cotangent, in powers of the cotangent."""
    powers = [0.0, 1.0]
    for _ in range(order):
        derived = [power * factor for power, factor in enumerate(powers)][1:]
        powers = [0.0] * (len(derived) + 2)
        for power, factor in enumerate(derived):
            powers[power] -= factor
            powers[power + 2] -= factor
    return powers


def _polygamma_from_half(order: int, x: Any) -> Any:
    power, end = order + 1, x + _SHIFT
    total = end**-order / order + 0.5 * end**-power
    for k, number in enumerate(_BERNOULLI, 1):
        rising = math.prod(range(power, power + 2 * k - 1)) / math.factorial(2 * k)
        total = total + number * rising * end ** -(power + 2 * k - 1)
    for step in range(_SHIFT):
        total = total + (x + step) ** -power
    return -((-1) ** order) * math.factorial(order) * total


_CENTRAL = (
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
_NEAR_TAIL = (
    (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103),
    (1.0, 0.73700164250, 0.12021132975),
)
_FAR_TAIL = (
    (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997),
    (1.0, 0.24197894225, 0.012258202635),
)
"""Numerators and denominators of algorithm AS 241 (Wichura 1988), with errors below 1e-7."""


def _inverse_error(x: Any, logarithm: Any) -> Any:
    """The inverse error function of x, by Giles (2010) around 0, and by AS 241 in the tails."""
    central = x * _polynomial(logarithm - 2.5, _CENTRAL)
    # The root of -log(p), if p is the probability of the tail: 1 - x ** 2 is 4 * p * (1 - p).
    rest = 1.0 + (-torch.expm1(-logarithm)).sqrt()
    root = (logarithm + math.log(2.0) + rest.log()).sqrt()
    near, far = (
        _polynomial(root - start, above) / _polynomial(root - start, below)
        for start, (above, below) in ((1.6, _NEAR_TAIL), (5.0, _FAR_TAIL))
    )
    tail = x.sign() * torch.where(root < 5.0, near, far) / math.sqrt(2.0)  # noqa: PLR2004 - the limit of algorithm AS 241
    return torch.where(logarithm < 5.0, central, tail)  # noqa: PLR2004 - the limit of Giles (2010)


def _erfinv(x: Any) -> Any:
    value = _inverse_error(x, -((1 - x) * (1 + x)).log())
    if x.dtype is torch.float64:
        for _ in range(2):
            size = value.abs()
            rest = torch.where(x.abs() < 0.5, x.abs() - torch.erf(size), _tail_error(x, size))  # noqa: PLR2004
            step = rest * (size * size).exp() * (math.sqrt(math.pi) / 2)
            value = value + torch.where(x.isfinite() & (rest != 0), x.sign() * step, 0.0)
    return torch.where(x.abs() == 1, x * math.inf, value)


def _tail_error(x: Any, size: Any) -> Any:
    return torch.erfc(size) - (1 - x.abs())


def _ndtri(p: Any) -> Any:
    """The inverse of the normal distribution function, accurate in its tails too."""
    x = 2.0 * p - 1.0
    value = math.sqrt(2.0) * _inverse_error(x, -(4.0 * p * (1.0 - p)).log())
    if p.dtype is torch.float64:
        tail = torch.minimum(p, 1.0 - p)
        for _ in range(2):
            size = value.abs()
            rest = 0.5 * torch.erfc(size / math.sqrt(2.0)) - tail
            step = rest * (size * size / 2).exp() * math.sqrt(2 * math.pi)
            value = value + torch.where(rest != 0, x.sign() * step, 0.0)
    return torch.where((p == 0) | (p == 1), x * math.inf, value)


def _erfcx(x: Any) -> Any:
    def near(x: Any) -> Any:
        return (x * x).exp() * torch.erfc(x)

    def far(x: Any) -> Any:
        return _gaussian_integral(x, lambda u: 1.0 / (x + u / x)) / math.pi

    value = _piecewise(x, 1.5, near, far)
    return torch.where(x >= 0, value, 2.0 * (x * x).exp() - value)


def _chebyshev(kind: str, shifted: bool, x: Any, n: Any) -> Any:
    """A polynomial of Chebyshev (T, U, V or W), by angles up to 1 and by hyperbolic ones above."""
    x, n = 2 * x - 1 if shifted else x, n.trunc()
    size = x.abs()
    inside, end = size < 1, size == 1
    angle = torch.acos(torch.where(inside, size, 0.0))
    above = torch.acosh(torch.where(inside, 1.0, size))

    def quotient(c: int, *, odd: bool) -> Any:
        """The sine or cosine of n + c / 2 angles over that of c / 2, whose e^(n angle) is apart."""
        wave = torch.sin if odd else torch.cos

        def growth(y: Any) -> Any:
            return -torch.expm1(-y) if odd else 1 + torch.exp(-y)

        near = wave((n + c / 2) * angle) / wave(c / 2 * angle)
        far = torch.exp(n * above) * growth((2 * n + c) * above) / growth(c * above)
        return torch.where(inside, near, far)

    if kind == "t":
        value = quotient(0, odd=False)
    elif kind == "u":
        value = torch.where(end, n + 1, quotient(2, odd=True))
    else:
        at_end = 2 * n + 1 - torch.where(n >= _LARGEST_DEGREE / 2, 2 * _LARGEST_DEGREE, 0.0)
        odd = torch.where(end, at_end, quotient(1, odd=True))
        value = torch.where((x < 0) == (kind == "v"), odd, quotient(1, odd=False))
    value = torch.where((x < 0) & (n % 2 == 1), -value, value)
    first = {"t": x, "u": x + x, "v": x + x - 1, "w": x + x + 1}[kind]
    value = torch.where(n == 1, first, value)
    value = torch.where(n == 0, 1.0, value)  # also of NaN
    return torch.where((n >= 0) & (n < _LARGEST_DEGREE), value, 0.0)


_LARGEST_DEGREE = 2.0**63
"""Degrees from this number on, and NaN, are negative for torch, which makes int64 of them. Twice a
degree from half of it on wraps."""


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.i0.default: partial(_bessel_i, 0),
    _ATEN.special_i1.default: partial(_bessel_i, 1),
    _ATEN.special_i0e.default: partial(_i_scaled, 0),
    _ATEN.special_i1e.default: partial(_i_scaled, 1),
    _ATEN.special_modified_bessel_i0.default: partial(_bessel_i, 0),
    _ATEN.special_modified_bessel_i1.default: partial(_bessel_i, 1),
    _ATEN.special_modified_bessel_k0.default: partial(_bessel_k, 0),
    _ATEN.special_modified_bessel_k1.default: partial(_bessel_k, 1),
    _ATEN.special_scaled_modified_bessel_k0.default: partial(_bessel_k, 0, scaled=True),
    _ATEN.special_scaled_modified_bessel_k1.default: partial(_bessel_k, 1, scaled=True),
    _ATEN.special_spherical_bessel_j0.default: _spherical_j0,
    _ATEN.digamma.default: _digamma,
    _ATEN.polygamma.default: _polygamma,
    _ATEN.erfinv.default: _erfinv,
    _ATEN.special_ndtri.default: _ndtri,
    _ATEN.special_erfcx.default: _erfcx,
    **{
        getattr(_ATEN, f"special_{shift}chebyshev_polynomial_{kind}").default: partial(
            _chebyshev, kind, bool(shift)
        )
        for kind in "tuvw"
        for shift in ("", "shifted_")
    },
}
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **{operator: _in_float32(function) for operator, function in _FUNCTIONS.items()},
    # TVM multiplies by -1, which is no unsigned number.
    _ATEN.neg.default: lambda x: NotImplemented if x.dtype.is_signed else x.bitwise_not() + 1,
    _ATEN.signbit.default: _signbit,
    _ATEN.copysign.Tensor: _copysign,
    _ATEN.copysign.Scalar: _copysign,
    _ATEN.frexp.Tensor: _frexp,
    _ATEN.ldexp.Tensor: _ldexp,
    _ATEN.fmax.default: lambda x, y: torch.where(y.isnan(), x, torch.where(x >= y, x, y)),
    _ATEN.fmin.default: lambda x, y: torch.where(y.isnan(), x, torch.where(x <= y, x, y)),
    _ATEN.angle.default: _angle,
    _ATEN.elu.default: _elu,
    # Self-Normalizing Neural Networks, Klambauer et al. 2017, equation 2
    _ATEN.selu.default: lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805),
    _ATEN.softplus.default: _in_float32(_softplus),
    _ATEN.expm1.default: lambda x: torch.tanh(x / 2) * (torch.exp(x) + 1),
    _ATEN.hypot.default: _hypot,
    **dict.fromkeys((_ATEN.remainder.Tensor, _ATEN.remainder.Scalar), _remainder),
    _ATEN.remainder.Scalar_Tensor: lambda x, y: torch.remainder(
        torch.full_like(y, x, dtype=torch.result_type(x, y)), y
    ),
    _ATEN.floor_divide.default: _floor_divide,
    **dict.fromkeys((_ATEN.div.Tensor_mode, _ATEN.div.Scalar_mode), _floor_divide),
}
"""Functions of torch that are traced instead of an operator, by operator."""
