"""Kinds of plugins as people write them."""

from __future__ import annotations

from collections.abc import Mapping

from chameleon_core.errors import ConfigError
from chameleon_core.plugins.kinds import KINDS, Kind
from chameleon_core.words import did_you_mean


def kind_named(text: str, kinds: Mapping[str, Kind] = KINDS) -> Kind | None:
    """The kind that somebody means: ``cost-model``, ``cost_models`` or ``cost model``; or None.

    Args:
        text: as it was written.
        kinds: those that there are, by name.
    """
    spelt = {kind.noun.replace(" ", "-"): kind for kind in kinds.values()}
    spelt |= {singular_of(kind): kind for kind in kinds.values()}
    spelt |= {kind.name.replace("_", "-"): kind for kind in kinds.values()}
    return spelt.get(_hyphened(text))


def kind_of(text: str, kinds: Mapping[str, Kind] = KINDS) -> Kind:
    """The same of a text that has to name one.

    Raises:
        ConfigError: it names none.
    """
    kind = kind_named(text, kinds)
    if kind is None:
        names = [singular_of(kind) for kind in kinds.values()]
        raise ConfigError(
            f"there is no kind of plugin '{text}'{did_you_mean(_hyphened(text), names)}",
            hint=f"kinds: {', '.join(names)}",
        )
    return kind


def singular_of(kind: Kind) -> str:
    """The word of commands for one plugin of a kind, such as ``cost-model``."""
    return kind.name.removesuffix("s").replace("_", "-")


def _hyphened(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")
