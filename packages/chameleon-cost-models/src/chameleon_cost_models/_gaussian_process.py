"""A Gaussian-process cost model, with uncertainties and a selection of informative batches."""

from __future__ import annotations

import math

import attrs
import numpy as np
import scipy
from chameleon_core.plugin_api import Configs, CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models._inputs import features_of, has_signal
from chameleon_cost_models._options import GaussianProcessOptions
from chameleon_cost_models._prior_mean import PriorMean

_RANGE_SAMPLE = 4096
"""The number of random configurations that estimate each feature's range in a large space."""

_LEAST_VALID = 2
_LEAST_SCALE = 1e-9

_GROWTH = 1.2
"""The factor by which the measurements must grow before the kernel's parameters are refitted."""

_PARAMETER_ROWS = 384
"""The largest number of measurements from which the kernel's parameters are learnt.

The time grows with the cube of this number, and more measurements hardly change the parameters.
"""


class GaussianProcess(CostModel):
    """Gaussian-process regression of the logarithm of throughput.

    The score is an upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010, equation
    6). Batches are selected with GP-BUCB (Desautels et al. 2014, algorithm 1): each selected
    configuration lowers the uncertainty of similar ones.
    """

    def __init__(self, options: GaussianProcessOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._range: tuple[Numbers, Numbers, NDArray[np.bool_]] | None = None
        self._posterior: Posterior | None = None
        # The key has the data of the fit, so that parameters depend on nothing else.
        self._cached_parameters: tuple[bytes, Parameters] | None = None
        self._prior = PriorMean(options.prior, context, logarithm=True)

    @property
    def trained(self) -> bool:
        return self._posterior is not None or self._prior.available

    def fit(self, observations: Observations) -> None:
        self._posterior = None
        timed = np.count_nonzero(observations.relative_throughput)
        if not has_signal(observations) or timed < _LEAST_VALID:
            return
        parameters = self._parameters(observations)
        rows = self._rows(observations.costs)
        points = self._points(observations.configs[rows])
        self._posterior = Posterior(points, self._residuals(observations)[rows], parameters)

    def predict(self, configs: Configs) -> Scores:
        """The score of each configuration: an upper confidence bound, shape (n,)."""
        if self._posterior is None or not len(configs):
            return self._prior.raw(configs)
        mean, std = self._posterior.moments(self._points(configs))
        scores: Scores = mean + self._prior_mean(configs) + self._options.kappa * std
        return scores

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        """Select rows for a batch with GP-BUCB (Desautels et al. 2014, algorithm 1).

        The result has row numbers in the order of selection, and is None before the first fit.
        """
        if self._posterior is None or not len(configs):
            return None
        points = self._points(configs)
        mean, _ = self._posterior.moments(points)
        mean = mean + self._prior_mean(configs)
        covariance = self._posterior.covariance(points)
        chosen: list[int] = []
        for _ in range(min(count, len(configs))):
            std = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
            scores = mean + self._options.kappa * std
            scores[chosen] = -np.inf
            chosen.append(int(np.argmax(scores)))
            # The mean stays the same, because the measured value is not known yet.
            covariance = self._posterior.conditioned(covariance, chosen[-1])
        return np.array(chosen, np.intp)

    def _parameters(self, observations: Observations) -> Parameters:
        """The kernel's parameters, learnt from the first measurements.

        Their number grows in a geometric series, so that refits become ever rarer.
        """
        valid = np.flatnonzero(observations.relative_throughput)
        # Standardising needs two timed measurements.
        count = int(valid[_LEAST_VALID - 1]) + 1
        last = min(len(observations), _PARAMETER_ROWS)
        while max(count + 1, int(count * _GROWTH)) <= last:
            count = max(count + 1, int(count * _GROWTH))
        first = _slice(observations, max(0, count - _PARAMETER_ROWS), count)
        key = first.configs.tobytes() + first.costs.tobytes()
        if self._cached_parameters is None or self._cached_parameters[0] != key:
            fitted = fit_parameters(self._points(first.configs), self._residuals(first))
            self._cached_parameters = key, fitted
        return self._cached_parameters[1]

    def _residuals(self, observations: Observations) -> Numbers:
        """The targets minus the prior's prediction, which is fitted to the same observations."""
        wanted = _targets(observations)
        if not self._prior.available:
            return wanted
        raw = self._prior.raw(observations.configs)
        self._prior.fit(raw, wanted)
        return wanted - self._prior.mean(raw)

    def _prior_mean(self, configs: Configs) -> Numbers:
        """The prior's prediction in units of the targets, or zeros without a prior."""
        if not self._prior.available:
            return np.zeros(len(configs))
        return self._prior.mean(self._prior.raw(configs))

    def _rows(self, costs: NDArray[np.float64]) -> NDArray[np.intp]:
        """The rows of the measurements to learn from: the latest and the fastest."""
        most = self._options.measurements
        if len(costs) <= most:
            return np.arange(len(costs))
        latest = np.arange(len(costs) - most // 2, len(costs))
        fastest = np.argsort(np.where(np.isfinite(costs), costs, np.inf), kind="stable")
        return np.union1d(latest, fastest[: most - len(latest)])

    def _points(self, configs: Configs) -> Numbers:
        """Features scaled to the range 0 to 1, shape (n, features); constant ones are left out."""
        if self._range is None:
            sample = self._space.all_legal
            if sample is None or not len(sample):
                sample = self._space.sample(_RANGE_SAMPLE, self._rng)
            features = features_of(self._space, sample)
            low = np.nan_to_num(np.fmin.reduce(features, axis=0)).astype(np.float64)
            high = np.nan_to_num(np.fmax.reduce(features, axis=0)).astype(np.float64)
            self._range = low, high, high > low
        low, high, varies = self._range
        features = features_of(self._space, configs)[:, varies].astype(np.float64)
        scaled = (features - low[varies]) / (high - low)[varies]
        # A missing feature gets the middle of its range.
        return np.clip(np.nan_to_num(scaled, nan=0.5), 0.0, 1.0)


def _slice(observations: Observations, begin: int, end: int) -> Observations:
    columns = attrs.asdict(observations, recurse=False)
    return Observations(**{name: column[begin:end] for name, column in columns.items()})


def _targets(observations: Observations) -> Numbers:
    """Standardised logarithms of relative throughput, shape (n,)."""
    quality = observations.relative_throughput
    timed = quality > 0.0
    logs = np.log(quality, out=np.zeros(len(quality)), where=timed)
    logs[~timed] = logs[timed].min()
    scaled: Numbers = (logs - logs.mean()) / max(float(logs.std()), _LEAST_SCALE)
    return scaled


Numbers = NDArray[np.float64]

_JITTER = 1e-6
"""A number added to the diagonal, which keeps the matrix regular for equal features."""

_LENGTH, _LENGTH_SPREAD = 0.28, 1.0
"""The median and the spread of the lognormal prior of a length scale.

The median is ``0.28 * sqrt(features)``. It grows with the distance of random points, as Hvarfner et
al. (2024) propose. Two random points of the unit cube are about ``sqrt(features / 6)`` apart, which
is one and a half such length scales.
"""

_NOISE, _NOISE_SPREAD, _SIGNAL_SPREAD = -4.0, 2.0, 2.0
"""The wide lognormal priors of the noise and signal variances, for standardised targets."""

_ITERATIONS = 30
"""The largest number of L-BFGS iterations, converged or not."""

_BOUND = 7.0
"""The bound on the absolute logarithm of every parameter, a factor of 1,100 either way."""

_ROWS_AT_ONCE = 1 << 12
"""The number of rows that are predicted at once, which limits the memory."""


@attrs.frozen(kw_only=True, eq=False)
class Parameters:
    """The parameters of a Gaussian process's kernel.

    Attributes:
        lengths: the length scale of each feature, shape (features,).
        signal: the prior variance of the function.
        noise: the variance of the measurement noise.
    """

    lengths: Numbers
    signal: float
    noise: float


def fit_parameters(points: Numbers, values: Numbers) -> Parameters:
    """Find the kernel parameters with the greatest posterior density, by L-BFGS.

    The likelihood and its gradient are equations 5.8 and 5.9 of Rasmussen and Williams (2006).
    ``points`` has features between 0 and 1, shape (n, features), and ``values`` standardised
    targets, shape (n,).
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
        factor = scipy.linalg.cholesky(covariance, lower=True, check_finite=False)
        inverse = scipy.linalg.cho_solve((factor, True), np.eye(count), check_finite=False)
        weights = inverse @ values
        off = (logs - centre) / spread
        value = 0.5 * values @ weights + np.log(np.diagonal(factor)).sum() + 0.5 * off @ off
        # This is the gradient of the loss by the covariance: equation 5.9, negated.
        outer = 0.5 * (inverse - np.outer(weights, weights))
        by_length = np.einsum("ij,ijk->k", outer * slope, squared) * inverse_squares
        by_signal, by_noise = (outer * kernel).sum(), noise * np.trace(outer)
        return value, np.concatenate([by_length, [by_signal, by_noise]]) + off / spread

    fit = scipy.optimize.minimize(
        loss,
        centre,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_BOUND, _BOUND)] * len(centre),
        options={"maxiter": _ITERATIONS},
    )
    best: Numbers = np.exp(fit.x)
    return Parameters(lengths=best[:-2], signal=float(best[-2]), noise=float(best[-1]))


class Posterior:
    """The posterior of a Gaussian process with known values (n,) at points (n, features)."""

    def __init__(self, points: Numbers, values: Numbers, parameters: Parameters) -> None:
        self._parameters = parameters
        self._points = points / parameters.lengths
        covariance = self._kernel(self._points, self._points)
        covariance[np.diag_indices(len(points))] += parameters.noise + _JITTER
        self._factor = scipy.linalg.cholesky(covariance, lower=True, check_finite=False)
        self._weights = scipy.linalg.cho_solve((self._factor, True), values, check_finite=False)

    def moments(self, points: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of the function at n points, shape (n,) each.

        The computation is algorithm 2.1 of Rasmussen and Williams (2006).
        """
        mean, variance = np.empty(len(points)), np.empty(len(points))
        for begin in range(0, len(points), _ROWS_AT_ONCE):
            some = slice(begin, begin + _ROWS_AT_ONCE)
            cross = self._kernel(self._points, points[some] / self._parameters.lengths)
            mean[some] = self._weights @ cross
            variance[some] = self._parameters.signal - (self._solved(cross) ** 2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def covariance(self, points: Numbers) -> Numbers:
        """The posterior covariance of the function between n points, shape (n, n)."""
        scaled = points / self._parameters.lengths
        solved = self._solved(self._kernel(self._points, scaled))
        covariance: Numbers = self._kernel(scaled, scaled) - solved.T @ solved
        return covariance

    def conditioned(self, covariance: Numbers, row: int) -> Numbers:
        """The covariance of n points, shape (n, n), if the point of one row is measured too."""
        known = covariance[row]
        noise = self._parameters.noise + _JITTER
        left: Numbers = covariance - np.outer(known, known) / (known[row] + noise)
        return left

    def _solved(self, cross: Numbers) -> Numbers:
        solved: Numbers = scipy.linalg.solve_triangular(
            self._factor, cross, lower=True, check_finite=False
        )
        return solved

    def _kernel(self, left: Numbers, right: Numbers) -> Numbers:
        squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
        return _kernel_and_slope(np.maximum(squares, 0.0), self._parameters.signal)[0]


def _kernel_and_slope(squares: Numbers, signal: float) -> tuple[Numbers, Numbers]:
    """The Matern 5/2 kernel (Rasmussen and Williams 2006, equation 4.17) and its slope.

    The slope times the squared scaled distance in one feature is the kernel's derivative by the
    logarithm of that feature's length scale.
    """
    distance = np.sqrt(5.0 * squares)
    decay = signal * np.exp(-distance)
    return (1.0 + distance + distance**2 / 3.0) * decay, 5.0 / 3.0 * (1.0 + distance) * decay
