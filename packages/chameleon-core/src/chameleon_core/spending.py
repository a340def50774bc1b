"""Where the seconds of a task went; kept across the processes of a run."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Spending:
    """Wall-clock of one task in seconds, summed over every process that worked on it.

    Work that a resumed run only repeats to get back to where it was is not counted again.

    Attributes:
        search: in explorer, sampler and synthesizer, cost-model predictions included.
        model: in fitting the cost model and in ``observe`` of the other stages.
        measure: waiting for the runner.
        build: building, summed over measurements; with several workers more than ``measure``.
        run: checking and timing, summed over measurements.
    """

    search: float = 0.0
    model: float = 0.0
    measure: float = 0.0
    build: float = 0.0
    run: float = 0.0

    @property
    def total(self) -> float:
        """Wall-clock of the task in seconds (``build`` and ``run`` are part of ``measure``)."""
        return self.search + self.model + self.measure

    def plus(self, **seconds: float) -> Spending:
        """The same with some seconds added."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + value for name, value in seconds.items()}
        )

    def __add__(self, other: Spending) -> Spending:
        return self.plus(**attrs.asdict(other))
