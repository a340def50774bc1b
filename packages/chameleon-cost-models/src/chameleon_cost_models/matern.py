"""Gaussian-process regression with a Matern 5/2 kernel and a length scale for every feature."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

Numbers = NDArray[np.float64]

_JITTER = 1e-6
"""Two configurations may have equal features; this on the diagonal keeps the matrix regular."""

_LENGTH, _LENGTH_SPREAD = 0.28, 1.0
"""The prior of a length scale is lognormal about ``0.28 * sqrt(features)``. It grows with the
distance of random points, as Hvarfner et al. (2024) propose: two points of the unit cube are about
``sqrt(features / 6)`` apart, which is one and a half such length scales."""

_NOISE, _NOISE_SPREAD, _SIGNAL_SPREAD = -4.0, 2.0, 2.0
"""The priors of both variances are lognormal and wide; they suit targets that are standardised."""

_ITERATIONS = 30
"""L-BFGS ends after so many iterations, converged or not."""

_BOUND = 7.0
"""The logarithm of every parameter stays within this much of 0: a factor of 1,100 either way."""

_ROWS_AT_ONCE = 1 << 12
"""So many rows are predicted at once, which bounds the memory and not the result."""


@attrs.frozen(kw_only=True, eq=False)
class Parameters:
    """The parameters of a kernel.

    Attributes:
        lengths: shape (features,).
        signal: variance of the function.
        noise: variance of a measurement.
    """

    lengths: Numbers
    signal: float
    noise: float


def fitted_parameters(points: Numbers, values: Numbers) -> Parameters:
    """Find the parameters of greatest posterior density, by L-BFGS from the priors' centres.

    The likelihood and its gradient are equations 5.8 and 5.9 of Rasmussen and Williams (2006);
    lognormal priors are added to them.

    Args:
        points: shape (n, features), each feature from 0 to 1.
        values: standardised, shape (n,).
    """
    count, features = points.shape
    squared = (points[:, None, :] - points[None, :, :]) ** 2
    centre = np.full(features + 2, math.log(_LENGTH * math.sqrt(max(features, 1))))
    centre[-2:] = 0.0, _NOISE
    spread = np.full(features + 2, _LENGTH_SPREAD)
    spread[-2:] = _SIGNAL_SPREAD, _NOISE_SPREAD

    def loss(logs: Numbers) -> tuple[float, Numbers]:
        inverse_squares = np.exp(-2.0 * logs[:-2])
        signal, noise = math.exp(logs[-2]), math.exp(logs[-1])
        kernel, slope = _kernel_and_slope(squared @ inverse_squares, signal)
        covariance = kernel + (noise + _JITTER) * np.eye(count)
        factor = linalg.cholesky(covariance, lower=True, check_finite=False)
        inverse = linalg.cho_solve((factor, True), np.eye(count), check_finite=False)
        weights = inverse @ values
        off = (logs - centre) / spread
        value = 0.5 * values @ weights + np.log(np.diagonal(factor)).sum() + 0.5 * off @ off
        # This is the gradient of the loss by the covariance: equation 5.9, negated.
        outer = 0.5 * (inverse - np.outer(weights, weights))
        by_length = np.einsum("ij,ijk->k", outer * slope, squared) * inverse_squares
        by_signal, by_noise = (outer * kernel).sum(), noise * np.trace(outer)
        return value, np.concatenate([by_length, [by_signal, by_noise]]) + off / spread

    found = optimize.minimize(
        loss,
        centre,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_BOUND, _BOUND)] * len(centre),
        options={"maxiter": _ITERATIONS},
    )
    best: Numbers = np.exp(found.x)
    return Parameters(lengths=best[:-2], signal=float(best[-2]), noise=float(best[-1]))


class Posterior:
    """The posterior of a Gaussian process: what known values say of all others.

    Args:
        points: shape (n, features).
        values: standardised, shape (n,).
        parameters: of the kernel.
    """

    def __init__(self, points: Numbers, values: Numbers, parameters: Parameters) -> None:
        self._parameters = parameters
        self._points = points / parameters.lengths
        covariance = self._kernel(self._points, self._points)
        covariance[np.diag_indices(len(points))] += parameters.noise + _JITTER
        self._factor = linalg.cholesky(covariance, lower=True, check_finite=False)
        self._weights = linalg.cho_solve((self._factor, True), values, check_finite=False)

    def moments(self, points: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of the function, each (n,).

        Rasmussen and Williams (2006), algorithm 2.1.
        """
        mean, variance = np.empty(len(points)), np.empty(len(points))
        for begin in range(0, len(points), _ROWS_AT_ONCE):
            some = slice(begin, begin + _ROWS_AT_ONCE)
            cross = self._kernel(self._points, points[some] / self._parameters.lengths)
            mean[some] = self._weights @ cross
            variance[some] = self._parameters.signal - (self._solved(cross) ** 2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def covariance(self, points: Numbers) -> Numbers:
        """The posterior covariance of the function between some points, shape (n, n)."""
        scaled = points / self._parameters.lengths
        solved = self._solved(self._kernel(self._points, scaled))
        covariance: Numbers = self._kernel(scaled, scaled) - solved.T @ solved
        return covariance

    def conditioned(self, covariance: Numbers, row: int) -> Numbers:
        """The covariance of some points after one of them is measured as well, shape (n, n).

        Args:
            covariance: what ``covariance`` or this method returned, shape (n, n).
            row: the point that is measured.
        """
        known = covariance[row]
        noise = self._parameters.noise + _JITTER
        left: Numbers = covariance - np.outer(known, known) / (known[row] + noise)
        return left

    def _solved(self, cross: Numbers) -> Numbers:
        solved: Numbers = linalg.solve_triangular(
            self._factor, cross, lower=True, check_finite=False
        )
        return solved

    def _kernel(self, left: Numbers, right: Numbers) -> Numbers:
        squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
        return _kernel_and_slope(np.maximum(squares, 0.0), self._parameters.signal)[0]


def _kernel_and_slope(squares: Numbers, signal: float) -> tuple[Numbers, Numbers]:
    """The Matern 5/2 kernel and its slope, for squared scaled distances.

    The kernel is equation 4.17 of Rasmussen and Williams (2006). The slope, times the squared
    scaled distance in one feature, is the derivative by the logarithm of that length scale.
    """
    distance = np.sqrt(5.0 * squares)
    decay = signal * np.exp(-distance)
    return (1.0 + distance + distance**2 / 3.0) * decay, 5.0 / 3.0 * (1.0 + distance) * decay
