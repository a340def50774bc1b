"""Kinds of plugins, by the names that users write."""

from __future__ import annotations

from collections.abc import Mapping

from chameleon_core.api import words
from chameleon_core.plugin_api import KINDS, ConfigError, Kind


def kind_named(text: str, kinds: Mapping[str, Kind] = KINDS) -> Kind | None:
    """The kind of plugin that a user means, for example by ``cost-model``; None if unknown.

    Args:
        text: the name as the user wrote it.
        kinds: the kinds of plugins by name.
    """
    spelt = {kind.noun.replace(" ", "-"): kind for kind in kinds.values()}
    spelt |= {singular_of(kind): kind for kind in kinds.values()}
    spelt |= {kind.name.replace("_", "-"): kind for kind in kinds.values()}
    return spelt.get(_hyphened(text))


def kind_of(text: str, kinds: Mapping[str, Kind] = KINDS) -> Kind:
    """The kind of plugin that a user means; like ``kind_named``, but with an error.

    Args:
        text: the name as the user wrote it.
        kinds: the kinds of plugins by name.

    Raises:
        ConfigError: no kind has this name.
    """
    kind = kind_named(text, kinds)
    if kind is None:
        names = [singular_of(kind) for kind in kinds.values()]
        raise ConfigError(
            f"there is no kind of plugin '{text}'{words.did_you_mean(_hyphened(text), names)}",
            hint=f"kinds: {', '.join(names)}",
        )
    return kind


def singular_of(kind: Kind) -> str:
    """The singular name of a kind in commands, such as ``cost-model``."""
    return kind.name.removesuffix("s").replace("_", "-")


def _hyphened(text: str) -> str:
    return text.strip().lower().replace("_", "-").replace(" ", "-")
