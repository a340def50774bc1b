"""The sketch space's analytical features, and the first guesses they rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from chameleon_core.space import Configs, DesignSpace, FeatureBlock, Values
from chameleon_core.space.identity import resolved
from numpy.typing import NDArray

from chameleon_tvm.spaces.sketch.constraints import Rows
from chameleon_tvm.spaces.sketch.model import NestModel, merged_model
from chameleon_tvm.spaces.sketch.plan import SKETCH

CYCLES = "cycles"
_DRAWN = 1 << 15
_APART = 3
_ASKED = 8
"""Programs that are made per guess at most, since many may turn out to be the same."""


def feature_block(models: Sequence[NestModel | None]) -> FeatureBlock | None:
    """Logarithms of every quantity of the nest models; None where no sketch has one."""
    names = _names(models)
    if not names:
        return None
    alike = merged_model(models)
    if alike is not None:
        return FeatureBlock(names=_prefixed(names), compute=_at_once(alike, names))

    def compute(values: Values) -> NDArray[np.float64]:
        sketch = values[SKETCH]
        out = np.zeros((len(sketch), len(names)))
        for number, model in enumerate(models):
            rows = np.flatnonzero(sketch == number)
            if model is None or not len(rows):
                continue
            quantities = model.quantities(Rows(values, rows), len(rows))
            columns: Any = np.stack([quantities[name] for name in names], axis=1)
            out[rows] = np.log2(1 + columns)
        return out

    return FeatureBlock(names=_prefixed(names), compute=compute)


def _prefixed(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"nest.{name}" for name in names)


def _at_once(alike: NestModel, names: Sequence[str]) -> Callable[[Values], NDArray[np.float64]]:
    """Features of all sketches by one evaluation: small batches cost as much as large ones."""

    def compute(values: Values) -> NDArray[np.float64]:
        quantities = alike.at(values).quantities(values, len(values[SKETCH]))
        columns = np.stack([quantities[name] for name in names], axis=1)
        out: NDArray[np.float64] = np.log2(1 + columns)
        return out

    return compute


def _names(models: Sequence[NestModel | None]) -> list[str]:
    """Quantities that every modelled sketch has, in one order."""
    described = [model.names() for model in models if model is not None]
    if not described:
        return []
    common = set(described[0]).intersection(*described)
    return [name for name in described[0] if name in common]


def first_guesses(
    space: DesignSpace, models: Sequence[NestModel | None], *, count: int, seed: int
) -> Configs:
    """The configurations the model of the machine ranks highest, no two of them alike.

    Args:
        space: without start configurations.
        models: one per sketch.
        count: how many to give.
        seed: of the sample that is ranked.
    """
    rng = np.random.default_rng(seed)
    drawn = space.sample(_DRAWN, rng)
    if not len(drawn) or not count:
        return drawn[:0]
    ranked = drawn[np.argsort(estimated_cycles(space, models, drawn), kind="stable")]
    chosen, asked = drawn[:0], 0
    for apart in range(_APART, 0, -1):
        for config in ranked:
            if len(chosen) == count or asked == _ASKED * count:
                return chosen
            if ((chosen != config).sum(axis=1) < apart).any():
                continue
            made, asked = resolved(space.resolve, config[None]), asked + 1
            if space.legal(made)[0] and ((chosen != made).sum(axis=1) >= apart).all():
                chosen = np.concatenate([chosen, made])
    return chosen


def estimated_cycles(
    space: DesignSpace, models: Sequence[NestModel | None], configs: Configs
) -> NDArray[np.float64]:
    """The model's cycles of every configuration; infinity for sketches without a model."""
    values = space.values(configs)
    sketch = values[SKETCH]
    cycles = np.full(len(configs), np.inf)
    for number, model in enumerate(models):
        rows = np.flatnonzero(sketch == number)
        if model is not None and len(rows):
            cycles[rows] = model.quantities(Rows(values, rows), len(rows))[CYCLES]
    return cycles
