"""What search stages learn from: the measurements of a task as arrays."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.space import Configs, DesignSpace


@attrs.frozen(kw_only=True, eq=False)
class Observations:
    """Everything measured so far for one task, in the order it was proposed.

    Attributes:
        configs: shape (n, knobs).
        costs: median kernel time in seconds, infinity for failures, shape (n,).
        failures: the kind of failure of each row, or None.
        build_seconds: wall-clock of each build in seconds, shape (n,).
        run_seconds: wall-clock of checking and timing each, in seconds, shape (n,).
    """

    configs: Configs
    costs: NDArray[np.float64]
    failures: tuple[FailureKind | None, ...]
    build_seconds: NDArray[np.float64]
    run_seconds: NDArray[np.float64] = attrs.field()

    @run_seconds.default
    def _no_run_seconds(self) -> NDArray[np.float64]:
        return np.zeros(len(self.configs))

    @classmethod
    def of(cls, space: DesignSpace, measurements: list[Measurement]) -> Observations:
        """The measurements as arrays."""
        width = len(space.knobs)
        return cls(
            configs=np.array([m.config for m in measurements], np.int32).reshape(-1, width),
            costs=np.array([m.cost for m in measurements], np.float64),
            failures=tuple(m.failure for m in measurements),
            build_seconds=np.array([m.build_seconds for m in measurements], np.float64),
            run_seconds=np.array([m.run_seconds for m in measurements], np.float64),
        )

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def best_cost(self) -> float:
        """The lowest cost in seconds; infinity where nothing succeeded."""
        return float(np.min(self.costs, initial=np.inf, where=self.costs > 0))

    @property
    def relative_throughput(self) -> NDArray[np.float64]:
        """Best cost over cost, in (0, 1], and 0 for failures (AutoTVM's y / y_max); shape (n,)."""
        best = self.best_cost
        if not np.isfinite(best):
            return np.zeros(len(self))
        # A cost of zero or not-a-number comes from a broken clock, not from a fast kernel.
        timed = np.isfinite(self.costs) & (self.costs > 0)
        return np.divide(best, self.costs, out=np.zeros(len(self)), where=timed)
