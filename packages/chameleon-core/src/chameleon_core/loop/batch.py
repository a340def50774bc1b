"""A proposed batch of one task."""

from __future__ import annotations

import attrs

from chameleon_core.loop.measuring import Config
from chameleon_core.loop.origins import Origins


@attrs.frozen(kw_only=True)
class Batch:
    """A proposed batch, split by what the store knows.

    Attributes:
        configs: all of it, in proposal order.
        missing: what has to be measured of it.
        known: how many of it the store has.
        origins: where each came from.
    """

    configs: tuple[Config, ...]
    missing: tuple[Config, ...]
    known: int
    origins: Origins = attrs.field(factory=dict)

    @property
    def in_flight(self) -> int:
        """Configurations that are learnt with it: those of ``configs`` that a budget left in it."""
        return self.known + len(self.missing)


__all__ = ["Batch"]
