"""The rule: which score a candidate has to have, given the original's."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Bound:
    """The least score that is accepted.

    Attributes:
        score: of the original.
        multiply_adds: of the original.
        proportional: as of ``NetworkScore``.
        tolerance: how far below a score may be, relative to the original's.
    """

    score: float
    multiply_adds: int
    proportional: bool
    tolerance: float = 0.0

    def at(self, multiply_adds: int) -> float:
        """The least score of a network of so many multiply-adds."""
        least = self.score - self.tolerance * abs(self.score)
        if not self.proportional:
            return least
        # Divided first: where multiply-adds decide, the quotient is exactly 1.
        return least / self.multiply_adds * multiply_adds
