"""The base of all synthesizers: it replaces rows of a batch, by rows that are new."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Visited


def measurable(space: DesignSpace, batch: Configs, visited: Visited) -> Configs:
    """The rows that can be measured as they are: legal, unvisited, for the first time."""
    batch = space.distinct(batch[space.legal(batch)])
    return batch[visited.fresh(batch)]


def kept_rows(batch: Configs, usable: Configs, share: float) -> Configs:
    """The measurable rows that stay.

    Args:
        batch: what the sampler chose.
        usable: those of its rows that can be measured, in their order.
        share: part of the batch that is replaced, the last rows first. At least one row stays.
    """
    replaced = max(round(share * len(batch)), len(batch) - len(usable))
    return usable[: max(len(batch) - replaced, min(1, len(usable)))]


def joined(space: DesignSpace, old: Configs, new: Configs, usable: Configs, size: int) -> Configs:
    """The kept rows, the new ones, and, if too few of these came, replaced ones again."""
    everything = np.concatenate([old, new.reshape(-1, old.shape[1]), usable])
    return space.distinct(everything.astype(np.int32))[:size]
