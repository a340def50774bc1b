"""Moves of the explorers that walk on measurements: steps along knobs, kicks, and their order."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Candidates, Visited


def nothing(space: DesignSpace) -> Configs:
    """No configuration of a space, shape (0, knobs)."""
    return np.empty((0, len(space.knobs)), np.int32)


def neighbourhoods(space: DesignSpace, configs: Configs, rng: np.random.Generator) -> Configs:
    """The configurations one index step away in one knob from any of ``configs``.

    All neighbours of the first configuration come first, in random order, then those of the second,
    and so on. A random order treats all knobs alike if a batch cuts a neighbourhood.

    Args:
        space: the design space.
        configs: shape (n, knobs).
        rng: orders the neighbours of each configuration.

    Returns:
        Distinct legal configurations, shape (m, knobs).
    """
    if not len(configs):
        return nothing(space)
    unit = np.eye(len(space.knobs), dtype=np.int32)
    steps = np.concatenate([unit, -unit])
    shuffled = steps[rng.random((len(configs), len(steps))).argsort(axis=1)]
    return usable(space, (configs[:, None, :] + shuffled).reshape(-1, len(space.knobs)))


def usable(space: DesignSpace, configs: Configs) -> Configs:
    """The distinct legal ones among index vectors that may be out of range, in their order."""
    configs = configs[((configs >= 0) & (configs < space.cardinalities)).all(axis=1)]
    configs = space.distinct(space.canonical(configs))
    legal: Configs = configs[space.legal(configs)]
    return legal


def kicked(
    space: DesignSpace, config: Configs, knobs: int, count: int, rng: np.random.Generator
) -> Configs:
    """The perturbation of an iterated local search: random knobs at random values.

    Args:
        space: the design space.
        config: what is kicked, shape (knobs,).
        knobs: how many knobs are drawn anew.
        count: how many kicks to try.
        rng: draws knobs and values.

    Returns:
        Distinct legal configurations, at most ``count``, shape (n, knobs).
    """
    width = len(space.knobs)
    # Only knobs with a choice are worth drawing.
    lots = rng.random((count, width)) * (space.cardinalities > 1)
    drawn = np.zeros((count, width), np.bool_)
    chosen = np.argsort(-lots, axis=1)[:, : min(knobs, width)]
    np.put_along_axis(drawn, chosen, values=True, axis=1)
    values = (rng.random((count, width)) * space.cardinalities).astype(np.int32)
    return usable(space, np.where(drawn, values, config).astype(np.int32))


def ranked(configs: Configs, visited: Visited, count: int, *, steps: int = 0) -> Candidates:
    """Candidates in the order given, with falling scores that say no more than that order.

    A sampler that takes the best scores then measures them in this order.
    """
    configs = configs[visited.fresh(configs)][:count].astype(np.int32)
    scores = np.linspace(1.0, 0.0, len(configs), endpoint=False)
    return Candidates(configs=configs, scores=scores, steps=steps)
