"""Functions with which synthesizers replace configurations of a batch by new ones."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Visited


def measurable(space: DesignSpace, batch: Configs, visited: Visited) -> Configs:
    """The configurations of a batch that can be measured: legal, new and without duplicates.

    Args:
        space: The design space.
        batch: The sampler's batch, shape (n, knobs).
        visited: The configurations that were measured before.
    """
    batch = space.distinct(batch[space.legal(batch)])
    return batch[visited.fresh(batch)]


def kept_rows(batch: Configs, usable: Configs, share: float) -> Configs:
    """The configurations of a batch that the synthesizer does not replace.

    Args:
        batch: The sampler's batch, shape (n, knobs).
        usable: The configurations of ``batch`` that can be measured, in the same order.
        share: The share of the batch to replace. Configurations that cannot be measured are
            replaced first, then the last usable ones; at least one usable configuration stays.
    """
    replaced = max(round(share * len(batch)), len(batch) - len(usable))
    return usable[: max(len(batch) - replaced, min(1, len(usable)))]


def joined(space: DesignSpace, old: Configs, new: Configs, usable: Configs, size: int) -> Configs:
    """The batch that a synthesizer returns: kept configurations, then new ones.

    Args:
        space: The design space.
        old: The kept configurations, shape (n, knobs).
        new: The new configurations, shape (m, knobs).
        usable: Configurations that fill up the batch if there are too few new ones.
        size: The largest size of the batch.
    """
    everything = np.concatenate([old, new.reshape(-1, old.shape[1]), usable])
    return space.distinct(everything.astype(np.int32))[:size]
