"""A design space in figures, for people: its knobs, how much of it is legal, its first guesses."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from chameleon_core.space.design import DesignSpace
from chameleon_core.space.knobs import Knob
from chameleon_core.space.predicates import Configs


@attrs.frozen(kw_only=True)
class LegalShare:
    """How many index vectors are legal configurations.

    Knobs that do not apply are first set to their first choice, as the space itself does where it
    draws: otherwise most vectors of a space with alternatives would differ from a legal one in
    choices that mean nothing.

    Attributes:
        share: legal ones over those looked at.
        samples: how many were looked at.
        exact: whether these were all of them; drawn evenly where not.
        configurations: how many legal ones there are, where the space can list them.
    """

    share: float
    samples: int
    exact: bool
    configurations: int | None = None


def legal_share(space: DesignSpace, samples: int, rng: np.random.Generator) -> LegalShare:
    """The share of legal index vectors.

    Args:
        space: any.
        samples: index vectors that are looked at, at most; all where there are no more.
        rng: draws them.
    """
    exact = space.size <= samples
    rows: Configs
    if exact:
        rows = space.from_keys(np.arange(space.size))
    else:
        rows = rng.integers(0, space.cardinalities, (samples, len(space.knobs)), np.int32)
    legal = space.legal(space.canonical(rows))
    everything = space.everything
    return LegalShare(
        share=float(legal.mean()),
        samples=len(rows),
        exact=exact,
        configurations=None if everything is None else len(everything),
    )


def describe_knob(space: DesignSpace, knob: Knob) -> dict[str, Any]:
    """A knob as JSON values: its name, all its values, and where it applies.

    Args:
        space: the one that it belongs to.
        knob: one of the space's.
    """
    when = None
    if knob.when is not None:
        other = space.knobs[space.index[knob.when[0]]]
        when = {"knob": other.name, "values": [other.decode(index) for index in knob.when[1]]}
    values = [knob.decode(index) for index in range(knob.cardinality)]
    return {"name": knob.name, "values": values, "when": when}


def describe_space(space: DesignSpace, *, samples: int, guesses: int, seed: int) -> dict[str, Any]:
    """A design space as JSON values.

    Args:
        space: any.
        samples: index vectors that are looked at for the share of legal ones.
        guesses: first guesses that are decoded, at most.
        seed: of the index vectors that are drawn.

    Returns:
        ``size`` (index vectors, legal or not), ``legal`` (see :class:`LegalShare`), ``knobs`` (see
        ``describe_knob``), ``constraints`` (the reasons why configurations are refused),
        ``first_guesses`` (how many there are) and ``guesses`` (the values of the first of them).
    """
    return {
        "size": space.size,
        "fingerprint": space.fingerprint,
        "legal": attrs.asdict(legal_share(space, samples, np.random.default_rng(seed))),
        "knobs": [describe_knob(space, knob) for knob in space.knobs],
        "constraints": list(dict.fromkeys(one.reason for one in space.constraints)),
        "first_guesses": len(space.first_guesses),
        "guesses": [shown_values(space, row.tolist()) for row in space.first_guesses[:guesses]],
    }


def shown_values(space: DesignSpace, config: list[int]) -> dict[str, Any]:
    """The values of the knobs that apply in a configuration, by name.

    Args:
        space: of the configuration.
        config: knob indices.
    """
    (active,) = space.active(np.asarray([config]))
    values = space.decode(config)
    return {name: value for (name, value), on in zip(values.items(), active, strict=True) if on}
