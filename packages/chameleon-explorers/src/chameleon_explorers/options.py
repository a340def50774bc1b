"""Options of the explorers. This module imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins.options import option


@attrs.frozen(kw_only=True)
class AnnealingOptions:
    """Options of the explorer ``annealing``. The defaults are AutoTVM's numbers."""

    chains: int = option(128, "parallel chains", at_least=1)
    steps: int = option(500, "steps of every chain a round", at_least=1)
    temperature: float = option(
        1.0, "initial temperature, in units of the score; falls linearly to 0", at_least=0.0
    )
    early_stop: int = option(
        50, "stop after so many steps without a change of the best set", at_least=1
    )
    persistent: bool = option(True, "chains go on from round to round")
    elites: int = option(
        0, "chains restarted each round at the best configurations measured", at_least=0
    )
    exhaustive: bool = option(
        False, "score all of a space of at most 32768 configurations instead of walking in it"
    )
    neighbours: float = option(
        0.0,
        "part of a batch for the best-scored neighbours of what measured best",
        at_least=0.0,
        at_most=1.0,
    )


@attrs.frozen(kw_only=True)
class LocalOptions:
    """Options of the explorer ``local``."""

    share: float = option(
        0.5,
        "part of a batch given to climbs away from the best configuration",
        at_least=0.0,
        at_most=1.0,
    )
    climbs: int = option(1, "climbs that share this part", at_least=1)
    kick: int = option(2, "knobs drawn anew if a climb leaves a local optimum", at_least=1)
    restart: float = option(
        1.0,
        "probability that a climb restarts anywhere, not near the best",
        at_least=0.0,
        at_most=1.0,
    )
    guided: bool = option(
        False, "order the neighbours of the best by the cost model, if there is one"
    )


@attrs.frozen(kw_only=True)
class DropletOptions:
    """Options of the explorer ``droplet``."""

    kick: int = option(2, "knobs drawn anew if no step of any length helps", at_least=1)


@attrs.frozen(kw_only=True)
class GeneticOptions:
    """Options of the explorer ``genetic``. The defaults are AutoTVM's numbers."""

    population: int = option(100, "size of a generation", at_least=2)
    elites: int = option(3, "best of all that stay parents", at_least=0)
    mutation: float = option(
        0.1, "probability that a knob of a child is drawn anew", at_least=0.0, at_most=1.0
    )
    fitness: Literal["measured", "model"] = option(
        "measured",
        "what selects parents: measurements, or the cost model's scores",
        validators.in_(("measured", "model")),
    )
    generations: int = option(
        20, "generations a round if the cost model is the fitness", at_least=1
    )


@attrs.frozen(kw_only=True)
class PortfolioOptions:
    """Options of the explorer ``portfolio``."""

    explorers: tuple[StageSpec | str, ...] = option(
        ("annealing", "local", "genetic"),
        "what it chooses among, each a name or a mapping with a name and options",
        validators.min_len(1),
        stages="explorers",
    )
    curiosity: float = option(
        0.5, "how much rounds go to explorers that had few, not to the best one", at_least=0.0
    )
    discount: float = option(
        0.95, "what a round counts relative to the one after it", above=0.0, at_most=1.0
    )
