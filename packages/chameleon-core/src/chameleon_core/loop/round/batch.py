"""A batch of one task: what was asked, what is missing, and what has arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chameleon_core.loop.round.origins import Config, Origins
from chameleon_core.measurement import Measurement


class Batch:
    """Configurations that are proposed, measured and learnt together.

    All that happens to them is told to this object, and kept by nobody else.

    Args:
        configs: in proposal order.
        stored: what the store has of their task.
        origins: what put each of them into the batch.

    Attributes:
        configs: in proposal order.
        origins: what put each of them into the batch.
        stored: how many of them the store had when they were proposed.
        submitted: whether something of it is, or was, measured by this process.
        seconds: wall-clock from when it was submitted to the last arrival until now.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        *,
        stored: Mapping[Config, Measurement],
        origins: Origins,
    ) -> None:
        self.configs = tuple(configs)
        self.origins = origins
        self._measured = {config: stored[config] for config in configs if config in stored}
        self._missing = [config for config in configs if config not in stored]
        self.stored = len(self._measured)
        self.submitted = False
        self.seconds = 0.0
        self._began = 0.0

    @property
    def missing(self) -> tuple[Config, ...]:
        """What is still to be measured; empty once the batch is complete."""
        return tuple(self._missing)

    @property
    def size(self) -> int:
        """Configurations that are learnt with it: those that a budget has left in it."""
        return len(self._measured) + len(self._missing)

    @property
    def measurements(self) -> list[Measurement]:
        """What the store had of it and what has arrived, in proposal order."""
        return [self._measured[config] for config in self.configs if config in self._measured]

    def shorten(self, size: int) -> None:
        """Leave out what was proposed last of the missing ones, so that ``size`` are learnt."""
        del self._missing[max(0, size - len(self._measured)) :]

    def submit(self, now: float) -> None:
        """It is being measured from now on.

        Args:
            now: seconds on the runner's clock.
        """
        self.submitted, self._began = True, now

    def arrive(self, measurement: Measurement, now: float) -> None:
        """A missing one was measured.

        Args:
            measurement: of it.
            now: seconds on the runner's clock.

        Raises:
            ValueError: it is not missing.
        """
        self._missing.remove(measurement.config)
        self._measured[measurement.config] = measurement
        self.seconds = now - self._began


__all__ = ["Batch"]
