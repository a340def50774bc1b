"""Proposes networks: random ones, and children of those that none is better than."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import DesignSpace
from numpy.typing import NDArray

from chameleon_transforms.search.front import not_dominated

Configs = NDArray[np.int32]

_RANDOM = 0.25
"""Share of a generation that is drawn anew."""
_MOST_MOVES = 4
"""Knobs of a child that are moved, at most."""


class Evolution:
    """A constrained search for small losses (Deb et al. 2002, with the front as parents).

    Args:
        space: the knobs.
        rng: draws everything.
    """

    def __init__(self, space: DesignSpace, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self._seen: set[bytes] = set()

    def propose(
        self, configs: Configs, losses: NDArray[np.float64], legal: NDArray[np.bool_], count: int
    ) -> Configs:
        """Networks that were not proposed before, shape (at most ``count``, knobs).

        Args:
            configs: networks that were judged, shape (n, knobs).
            losses: of each, shape (n, objectives); smaller is better.
            legal: which of them were accepted, shape (n,).
            count: networks that are wanted.
        """
        self._seen |= {row.tobytes() for row in np.ascontiguousarray(configs, np.int32)}
        found: list[NDArray[np.int32]] = []
        for _ in range(16):
            missing = count - len(found)
            if not missing:
                break
            for row in self._drawn(configs, losses, legal, missing):
                key = row.tobytes()
                if key not in self._seen and len(found) < count:
                    self._seen.add(key)
                    found.append(row)
        return np.array(found, np.int32).reshape(-1, len(self._space.knobs))

    def _drawn(
        self, configs: Configs, losses: NDArray[np.float64], legal: NDArray[np.bool_], count: int
    ) -> Configs:
        parents = configs[legal][not_dominated(losses[legal])] if legal.any() else configs[:0]
        fresh = count if len(parents) < 2 else max(1, round(_RANDOM * count))  # noqa: PLR2004
        drawn = self._space.sample(fresh, self._rng)
        # Between the original and a random network lie those that change a few layers only.
        share = self._rng.random((len(drawn), 1))
        sparse = np.where(self._rng.random(drawn.shape) < share, drawn, 0).astype(np.int32)
        if fresh == count:
            return self._space.canonical(sparse)
        pairs = self._rng.integers(0, len(parents), (count - fresh, 2))
        crossed = self._rng.random((len(pairs), parents.shape[1])) < 0.5  # noqa: PLR2004
        children = np.where(crossed, parents[pairs[:, 0]], parents[pairs[:, 1]])
        moves = self._rng.integers(1, _MOST_MOVES + 1, len(children))
        for step in range(_MOST_MOVES):
            moved = self._space.mutate(children, self._rng)
            children = np.where((moves > step)[:, None], moved, children).astype(np.int32)
        return np.concatenate([sparse, children])
