"""Kinds of plugins as people write them."""

from __future__ import annotations

from chameleon_core.errors import ConfigError
from chameleon_core.plugins.kinds import KINDS, Kind
from chameleon_core.words import did_you_mean


def kind_named(text: str) -> Kind | None:
    """The kind that somebody means: ``cost-model``, ``cost_models`` or ``cost model``; or None."""
    spelt = {kind.noun.replace(" ", "-"): kind for kind in KINDS.values()}
    spelt |= {singular_of(kind): kind for kind in KINDS.values()}
    spelt |= {kind.name.replace("_", "-"): kind for kind in KINDS.values()}
    return spelt.get(_hyphened(text))


def kind_of(text: str) -> Kind:
    """The same of a text that has to name one.

    Raises:
        ConfigError: it names none.
    """
    found = kind_named(text)
    if found is None:
        names = [singular_of(kind) for kind in KINDS.values()]
        raise ConfigError(
            f"there is no kind of plugin '{text}'{did_you_mean(_hyphened(text), names)}",
            hint=f"kinds: {', '.join(names)}",
        )
    return found


def singular_of(kind: Kind) -> str:
    """What commands call one plugin of a kind, such as ``cost-model``."""
    return kind.name.removesuffix("s").replace("_", "-")


def _hyphened(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")


__all__ = ["kind_named", "kind_of", "singular_of"]
