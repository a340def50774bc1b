"""Options of the explorers. Importing them imports no numerical library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators
from chameleon_core.pipeline.schema import StageSpec


@attrs.frozen(kw_only=True)
class AnnealingOptions:
    """Options of ``annealing``; the defaults are AutoTVM's numbers."""

    chains: int = attrs.field(
        default=128, validator=validators.ge(1), metadata={"help": "parallel chains"}
    )
    steps: int = attrs.field(
        default=500, validator=validators.ge(1), metadata={"help": "steps of every chain a round"}
    )
    temperature: float = attrs.field(
        default=1.0,
        validator=validators.ge(0.0),
        metadata={"help": "initial temperature, in units of the score; falls linearly to 0"},
    )
    early_stop: int = attrs.field(
        default=50,
        validator=validators.ge(1),
        metadata={"help": "stop after so many steps without a change of the best set"},
    )
    persistent: bool = attrs.field(
        default=True, metadata={"help": "chains go on from round to round"}
    )
    elites: int = attrs.field(
        default=0,
        validator=validators.ge(0),
        metadata={"help": "chains restarted each round at the best configurations measured"},
    )
    exhaustive: bool = attrs.field(
        default=False,
        metadata={
            "help": "score all of a space of at most 32768 configurations instead of walking in it"
        },
    )
    neighbours: float = attrs.field(
        default=0.0,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "part of a batch for the best-scored neighbours of what measured best"},
    )


@attrs.frozen(kw_only=True)
class LocalOptions:
    """Options of ``local``."""

    share: float = attrs.field(
        default=0.5,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "part of a batch given to climbs away from the best configuration"},
    )
    climbs: int = attrs.field(
        default=1, validator=validators.ge(1), metadata={"help": "climbs that share this part"}
    )
    kick: int = attrs.field(
        default=2,
        validator=validators.ge(1),
        metadata={"help": "knobs drawn anew if a climb leaves a local optimum"},
    )
    restart: float = attrs.field(
        default=1.0,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "probability that a climb restarts anywhere, not near the best"},
    )
    guided: bool = attrs.field(
        default=False,
        metadata={"help": "order the neighbours of the best by the cost model, if there is one"},
    )


@attrs.frozen(kw_only=True)
class DropletOptions:
    """Options of ``droplet``."""

    kick: int = attrs.field(
        default=2,
        validator=validators.ge(1),
        metadata={"help": "knobs drawn anew if no step of any length helps"},
    )


@attrs.frozen(kw_only=True)
class GeneticOptions:
    """Options of ``genetic``; the defaults are AutoTVM's numbers."""

    population: int = attrs.field(
        default=100, validator=validators.ge(2), metadata={"help": "size of a generation"}
    )
    elites: int = attrs.field(
        default=3,
        validator=validators.ge(0),
        metadata={"help": "best of all that stay parents"},
    )
    mutation: float = attrs.field(
        default=0.1,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "probability that a knob of a child is drawn anew"},
    )
    fitness: Literal["measured", "model"] = attrs.field(
        default="measured",
        validator=validators.in_(("measured", "model")),
        metadata={"help": "what selects parents: measurements, or the cost model's scores"},
    )
    generations: int = attrs.field(
        default=20,
        validator=validators.ge(1),
        metadata={"help": "generations a round if the cost model is the fitness"},
    )


@attrs.frozen(kw_only=True)
class PortfolioOptions:
    """Options of ``portfolio``."""

    explorers: tuple[StageSpec | str, ...] = attrs.field(
        default=("annealing", "local", "genetic"),
        validator=validators.min_len(1),
        metadata={
            "stages": "explorers",
            "help": "what it chooses among, each a name or a mapping with a name and options",
        },
    )
    curiosity: float = attrs.field(
        default=0.5,
        validator=validators.ge(0.0),
        metadata={"help": "how much rounds go to explorers that had few, not to the best one"},
    )
    discount: float = attrs.field(
        default=0.95,
        validator=[validators.gt(0.0), validators.le(1.0)],
        metadata={"help": "what a round counts relative to the one after it"},
    )
