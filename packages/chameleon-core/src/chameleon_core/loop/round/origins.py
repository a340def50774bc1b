"""Where each measured configuration came from, and who is replaced by random search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import attrs
import structlog

from chameleon_core.space import Configs

Config = tuple[int, ...]

log = structlog.get_logger()


class Origin(StrEnum):
    """What put a configuration into a batch."""

    INITIAL = "initial"
    """A first guess of the space, or a random configuration of the batch before any search."""

    SUGGESTION = "suggestion"
    """The best of another task of the run, or of an earlier run."""

    EXPLORER = "explorer"
    """A candidate of the explorer that the sampler kept."""

    SAMPLER = "sampler"
    """The sampler's own, which was no candidate."""

    SYNTHESIZER = "synthesizer"
    """What the synthesizer put in the place of another one."""

    FALLBACK = "fallback"
    """What the loop took where the stages gave nothing that is legal and new: first guesses that
    were left over, random configurations, neighbours of measured ones."""


Origins = Mapping[Config, Origin]


def tuples(configs: Configs) -> list[Config]:
    """The rows of an array, shape (n, knobs), as tuples of Python's own integers."""
    return [tuple(row) for row in configs.tolist()]


def searched(
    batch: Iterable[Config], *, candidates: Iterable[Config], selected: Iterable[Config]
) -> dict[Config, Origin]:
    """Which stage each configuration of a searched batch came from.

    Args:
        batch: what the synthesizer made of ``selected``.
        candidates: the explorer's.
        selected: the sampler's.
    """
    explored, kept = set(candidates), set(selected)

    def origin(config: Config) -> Origin:
        if config not in kept:
            return Origin.SYNTHESIZER
        return Origin.EXPLORER if config in explored else Origin.SAMPLER

    return {config: origin(config) for config in batch}


@attrs.define(kw_only=True)
class FallbackWatch:
    """Says once of every stage of a run whose work is done by the fallback instead.

    A last batch of a small space, where little is left that is new, is no reason; that most of what
    was searched for came from elsewhere is.
    """

    _searched: int = attrs.field(default=0, init=False)
    _replaced: int = attrs.field(default=0, init=False)
    _named: set[str] = attrs.field(factory=set, init=False)

    def see(self, task: str, origins: Origins, short: str | None) -> None:
        """Look at a batch.

        Args:
            task: the task's name.
            origins: of the batch's configurations.
            short: the stage that gave fewer than were wanted, in words; None where none did.
        """
        found = [
            origin
            for origin in origins.values()
            if origin not in {Origin.INITIAL, Origin.SUGGESTION}
        ]
        self._searched += len(found)
        self._replaced += found.count(Origin.FALLBACK)
        if short is None or short in self._named or 2 * self._replaced <= self._searched:
            return
        self._named.add(short)
        log.warning(
            "a stage gives too few configurations that are legal and not measured yet; "
            "random ones are measured in their place",
            stage=short,
            task=task,
            random=self._replaced,
            of=self._searched,
        )


__all__ = ["Config", "FallbackWatch", "Origin", "Origins", "searched", "tuples"]
