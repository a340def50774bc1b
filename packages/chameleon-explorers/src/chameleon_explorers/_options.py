"""Options of the explorers. This module imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.plugin_api import StageSpec, option


@attrs.frozen(kw_only=True)
class AnnealingOptions:
    """Options of the explorer ``annealing``. The defaults are AutoTVM's numbers."""

    chains: int = option(128, "number of parallel walks (chains)", at_least=1)
    steps: int = option(500, "number of steps of every chain per round", at_least=1)
    temperature: float = option(
        1.0, "initial temperature, in units of the score; falls linearly to 0", at_least=0.0
    )
    early_stop: int = option(
        50, "number of steps without new best candidates after which the walk ends", at_least=1
    )
    persistent: bool = option(True, "continue the chains of the last round")
    elites: int = option(
        0, "number of chains that start each round at the best measured configurations", at_least=0
    )
    exhaustive: bool = option(
        False, "score the whole space, without a walk, if it has at most 32768 configurations"
    )
    neighbours: float = option(
        0.0,
        "share of a batch for neighbours of the best measured configurations",
        at_least=0.0,
        at_most=1.0,
    )


@attrs.frozen(kw_only=True)
class LocalOptions:
    """Options of the explorer ``local``."""

    share: float = option(
        0.5,
        "share of a batch for climbs away from the best configuration",
        at_least=0.0,
        at_most=1.0,
    )
    climbs: int = option(1, "number of climbs that divide `share` among them", at_least=1)
    kick: int = option(
        2, "number of knobs that get random values when a climb leaves a local optimum", at_least=1
    )
    restart: float = option(
        1.0,
        "probability that a climb restarts at a random configuration, not near the best one",
        at_least=0.0,
        at_most=1.0,
    )
    guided: bool = option(
        False, "order the neighbours of the best configurations by the cost model, if there is one"
    )


@attrs.frozen(kw_only=True)
class DropletOptions:
    """Options of the explorer ``droplet``."""

    kick: int = option(
        2,
        "number of knobs that get random values if no step of any length is an improvement",
        at_least=1,
    )


@attrs.frozen(kw_only=True)
class GeneticOptions:
    """Options of the explorer ``genetic``. The defaults are AutoTVM's numbers."""

    population: int = option(100, "number of configurations in a generation", at_least=2)
    elites: int = option(
        3, "number of the fastest configurations so far that stay parents", at_least=0
    )
    mutation: float = option(
        0.1, "probability that a knob of a child gets a random value", at_least=0.0, at_most=1.0
    )
    fitness: Literal["measured", "model"] = option(
        "measured",
        "measured: measurements select the parents; model: the cost model's scores do",
        validators.in_(("measured", "model")),
    )
    generations: int = option(
        20, "number of generations per round with `fitness: model`", at_least=1
    )


@attrs.frozen(kw_only=True)
class PortfolioOptions:
    """Options of the explorer ``portfolio``."""

    explorers: tuple[StageSpec | str, ...] = option(
        ("annealing", "local", "genetic"),
        "the explorers to choose from, each a name or a mapping with a name and options",
        validators.min_len(1),
        stages="explorers",
    )
    curiosity: float = option(
        0.5, "weight of explorers that had few rounds, against the best explorer", at_least=0.0
    )
    discount: float = option(
        0.95, "weight of a round, relative to the round after it", above=0.0, at_most=1.0
    )
