"""Rewrites element-wise operators of torch with simpler ones that have its special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_ATEN = torch.ops.aten


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is computed in float32 for tensors of 16 bits, as in torch.

    Args:
        function: A function of tensors and of other arguments.
    """

    def computed(*args: Any) -> Any:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        narrow = [x.dtype for x in tensors if x.is_floating_point() and x.dtype.itemsize < 4]  # noqa: PLR2004 - bytes of float32
        if not narrow:
            return function(*args)
        wide = (x.float() if isinstance(x, torch.Tensor) else x for x in args)
        return function(*wide).to(narrow[0])

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


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
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
    _ATEN.softplus.default: in_float32(_softplus),
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
