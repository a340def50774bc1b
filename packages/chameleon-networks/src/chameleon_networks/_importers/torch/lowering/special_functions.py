"""Element-wise operators and special functions of torch within float32's precision.

Abramowitz and Stegun, Handbook of Mathematical Functions: Bessel (9.4.1 to 9.4.6, 9.8.1 to 9.8.8),
gamma (6.1.41, 6.3.18) and Chebyshev (22.3.15, 22.3.16).
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
    magnitude = torch.where((x == 0) | ~x.isfinite(), 1.0, x.abs())
    power = magnitude.log2().floor() + 1
    fraction = magnitude * torch.exp2(-power)
    power = torch.where(fraction >= 1, power + 1, torch.where(2 * fraction < 1, power - 1, power))
    ordinary = (x != 0) & x.isfinite()
    exact = torch.where(ordinary, x * torch.exp2(-power), x)
    return exact, torch.where(ordinary, power, 0).to(torch.int32)


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


_J = (
    (1.0, -2.2499997, 1.2656208, -0.3163866, 0.0444479, -0.0039444, 0.0002100),
    (0.5, -0.56249985, 0.21093573, -0.03954289, 0.00443319, -0.00031761, 0.00001109),
)
_Y = (
    (0.36746691, 0.60559366, -0.74350384, 0.25300117, -0.04261214, 0.00427916, -0.00024846),
    (-0.6366198, 0.2212091, 2.1682709, -1.3164827, 0.3123951, -0.0400976, 0.0027873),
)
_SIZE = (
    (0.79788456, -0.00000077, -0.00552740, -0.00009512, 0.00137237, -0.00072805, 0.00014476),
    (0.79788456, 0.00000156, 0.01659667, 0.00017105, -0.00249511, 0.00113653, -0.00020033),
)
_ANGLE = (
    (-0.78539816, -0.04166397, -0.00003954, 0.00262573, -0.00054125, -0.00029333, 0.00013558),
    (-2.35619449, 0.12499612, 0.00005650, -0.00637879, 0.00074348, 0.00079824, -0.00029166),
)
_I = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
)
_I_FAR = (
    (
        *(0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706),
        *(0.02635537, -0.01647633, 0.00392377),
    ),
    (
        *(0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967),
        *(-0.02895312, 0.01787654, -0.00420059),
    ),
)
_K = (
    (-0.57721566, 0.42278420, 0.23069756, 0.03488590, 0.00262698, 0.00010750, 0.00000740),
    (1.0, 0.15443144, -0.67278579, -0.18156897, -0.01919402, -0.00110404, -0.00004686),
)
_K_FAR = (
    (1.25331414, -0.07832358, 0.02189568, -0.01062446, 0.00587872, -0.00251540, 0.00053208),
    (1.25331414, 0.23498619, -0.03655620, 0.01504268, -0.00780353, 0.00325614, -0.00068245),
)


def _bessel_far(order: int, turn: Callable[[Any], Any], x: Any) -> Any:
    """A Bessel function of the first or second kind, for x of at least 3."""
    u = 3.0 / x
    return _polynomial(u, _SIZE[order]) * turn(x + _polynomial(u, _ANGLE[order])) / x.sqrt()


def _bessel_near(limit: float, tables: Sequence[Sequence[float]], order: int, x: Any) -> Any:
    """A Bessel function near zero, which is even or odd, for x up to a limit."""
    value = _polynomial((x / limit) ** 2, tables[order])
    return value * x if order else value


_j_near, _i_near = partial(_bessel_near, 3.0, _J), partial(_bessel_near, 3.75, _I)


def _bessel_j(order: int, x: Any) -> Any:
    result = _piecewise(x, 3.0, partial(_j_near, order), partial(_bessel_far, order, torch.cos))
    return torch.where(x < 0, -result, result) if order else result


def _y_near(order: int, x: Any) -> Any:
    rest = _polynomial((x / 3.0) ** 2, _Y[order])
    return 2.0 / math.pi * (x / 2.0).log() * _j_near(order, x) + (rest / x if order else rest)


def _bessel_y(order: int, x: Any) -> Any:
    result = _piecewise(x, 3.0, partial(_y_near, order), partial(_bessel_far, order, torch.sin))
    return _restrict_to_positive(x, result, -math.inf)


def _restrict_to_positive(x: Any, value: Any, at_zero: float) -> Any:
    """Restrict a function to positive x: ``at_zero`` for zero, and NaN for negative x."""
    return torch.where(x > 0, value, torch.where(x == 0, at_zero, math.nan))


def _i_scaled(order: int, x: Any) -> Any:
    """``exp(-|x|) I(x)``."""
    result = _piecewise(
        x,
        3.75,
        lambda x: torch.exp(-x) * _i_near(order, x),
        lambda x: _polynomial(3.75 / x, _I_FAR[order]) / x.sqrt(),
    )
    return torch.where(x < 0, -result, result) if order else result


def _bessel_i(order: int, x: Any) -> Any:
    half = (0.5 * x.abs()).exp()  # two factors overflow later than one
    return _i_scaled(order, x) * half * half


def _k_near(order: int, x: Any) -> Any:
    sign = 1 if order else -1
    rest = _polynomial((x / 2.0) ** 2, _K[order])
    return sign * (x / 2.0).log() * _i_near(order, x) + (rest / x if order else rest)


def _bessel_k(order: int, x: Any, *, scaled: bool = False) -> Any:
    def near(x: Any) -> Any:
        return _k_near(order, x) * x.exp() if scaled else _k_near(order, x)

    def far(x: Any) -> Any:
        value = _polynomial(2.0 / x, _K_FAR[order]) / x.sqrt()
        return value if scaled else value * (-x).exp()

    return _restrict_to_positive(x, _piecewise(x, 2.0, near, far), math.inf)


def _spherical_j0(x: Any) -> Any:
    small = x.abs() < 0.5  # noqa: PLR2004 - the series has four terms
    near = _polynomial(x * x, (1.0, -1 / 6, 1 / 120, -1 / 5040))
    far = torch.where(small | (x.abs() == math.inf), 1.0, x)
    return torch.where(small, near, torch.where(x.abs() == math.inf, 0.0, torch.sin(far) / far))


_SHIFT = 8
"""Number of steps of the recurrences of gamma and digamma, after which their series are exact in
float32."""


def _log_gamma(x: Any) -> Any:
    reflected = x < 0.5  # noqa: PLR2004 - the reflection formula is for x < 1/2
    value = _log_gamma_from_half(torch.where(reflected, 1.0 - x, x))
    sine = torch.sin(math.pi * (x - x.round())).abs()
    result = torch.where(reflected, math.log(math.pi) - sine.log() - value, value)
    infinite = (x.abs() == math.inf) | (reflected & (x == x.round()))
    return torch.where(infinite, math.inf, result)


def _log_gamma_from_half(x: Any) -> Any:
    small = x < _SHIFT
    near = torch.where(small, x, 1.0)
    product = near
    for step in range(1, _SHIFT):
        product = product * (near + step)
    y = torch.where(small, x + _SHIFT, x)
    rest = _polynomial(1 / (y * y), (1 / 12, -1 / 360, 1 / 1260)) / y
    value = (y - 0.5) * y.log() - y + (0.5 * math.log(2 * math.pi) + rest)
    return torch.where(small, value - product.log(), value)


def _digamma(x: Any) -> Any:
    reflected = x < 0.5  # noqa: PLR2004 - the reflection formula is for x < 1/2
    value = _digamma_from_half(torch.where(reflected, 1.0 - x, x))
    turn = x - x.round()  # the difference is exact near a pole
    value = torch.where(reflected, value - math.pi / torch.tan(math.pi * turn), value)
    poles = torch.where(x == 0, -1.0 / x, math.nan)
    return torch.where((x <= 0) & (turn == 0), poles, value)


def _digamma_from_half(x: Any) -> Any:
    y = x + _SHIFT
    value = y.log() - 0.5 / y - _polynomial(1 / (y * y), (0.0, 1 / 12, -1 / 120, 1 / 252))
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
    return torch.where((x <= 0) & (turn == 0), -((-1) ** order) * math.inf, value)


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
    for count, number in ((1, 1 / 12), (3, -1 / 720), (5, 1 / 30240)):
        rising = math.prod(range(power, power + count))
        total = total + number * rising * end ** -(power + count)
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
    return torch.where(x.abs() == 1, x * math.inf, _inverse_error(x, -((1 - x) * (1 + x)).log()))


def _ndtri(p: Any) -> Any:
    """The inverse of the normal distribution function, accurate in its tails too."""
    x = 2.0 * p - 1.0
    value = math.sqrt(2.0) * _inverse_error(x, -(4.0 * p * (1.0 - p)).log())
    return torch.where((p == 0) | (p == 1), x * math.inf, value)


_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807),
    *(-1.13520398, 1.48851587, -0.82215223, 0.17087277),
)
"""Coefficients of Press et al., Numerical Recipes, section 6.2: the error is below 1.2e-7."""


def _erfcx(x: Any) -> Any:
    value = _erfcx_above_zero(x.abs())
    return torch.where(x >= 0, value, 2.0 * (x * x).exp() - value)


def _erfcx_above_zero(x: Any) -> Any:
    t = 1.0 / (1.0 + 0.5 * x)
    return t * _polynomial(t, _ERFC).exp()


def _erfc(x: Any) -> Any:
    """``1 - erf(x)``, with all digits of float32 if x is large."""
    if x.dtype is torch.float64:
        return 1.0 - torch.erf(x)
    large = x > 0.5  # noqa: PLR2004 - erf is about one half there
    tail = torch.where(large, x, 1.0)
    # The square of the first bits is exact, which a large exponent needs.
    first = (tail * 16.0).trunc().clamp(max=1024.0) / 16.0
    power = (-first * first).exp() * ((first - tail) * (first + tail)).exp()
    return torch.where(large, power * _erfcx_above_zero(tail), 1.0 - torch.erf(x))


def _chebyshev(kind: str, shifted: bool, x: Any, n: Any) -> Any:
    """A polynomial of Chebyshev (T, U, V or W), by angles up to 1 and by hyperbolic ones above."""
    x, n = 2 * x - 1 if shifted else x, n.trunc()
    size = x.abs()
    inside, end = size < 1, size == 1
    angle = torch.acos(torch.where(inside, size, 0.0))
    above = torch.acosh(torch.where(inside, 1.0, size))

    def cosine(factor: Any) -> Any:
        return torch.where(inside, torch.cos(factor * angle), torch.cosh(factor * above))

    def sine(factor: Any) -> Any:
        return torch.where(inside, torch.sin(factor * angle), torch.sinh(factor * above))

    if kind == "t":
        value = cosine(n)
    elif kind == "u":
        value = torch.where(end, n + 1, sine(n + 1) / torch.where(end, 1.0, sine(1)))
    else:
        odd = torch.where(end, 2 * n + 1, sine(n + 0.5) / torch.where(end, 1.0, sine(0.5)))
        even = cosine(n + 0.5) / cosine(0.5)
        value = torch.where((x < 0) == (kind == "v"), odd, even)
    value = torch.where((x < 0) & (n % 2 == 1), -value, value)
    return torch.where(n < 0, 0.0, value)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.special_bessel_j0.default: partial(_bessel_j, 0),
    _ATEN.special_bessel_j1.default: partial(_bessel_j, 1),
    _ATEN.special_bessel_y0.default: partial(_bessel_y, 0),
    _ATEN.special_bessel_y1.default: partial(_bessel_y, 1),
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
    _ATEN.lgamma.default: _log_gamma,
    _ATEN.digamma.default: _digamma,
    _ATEN.polygamma.default: _polygamma,
    _ATEN.erfinv.default: _erfinv,
    _ATEN.special_ndtri.default: _ndtri,
    _ATEN.erfc.default: _erfc,
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
    _ATEN.fmax.default: lambda x, y: torch.where(y.isnan(), x, torch.where(x >= y, x, y)),
    _ATEN.fmin.default: lambda x, y: torch.where(y.isnan(), x, torch.where(x <= y, x, y)),
    _ATEN.ldexp.Tensor: lambda x, y: x * torch.exp2(y.float()),
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
