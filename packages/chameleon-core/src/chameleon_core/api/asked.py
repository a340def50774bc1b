"""A batch of configurations that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from chameleon_core.errors import ConfigError
from chameleon_core.loop.round.batch import Batch, Config
from chameleon_core.space import DesignSpace


@attrs.frozen(kw_only=True, eq=False)
class Asked(Sequence[Mapping[str, Any]]):
    """A batch that was asked for: a sequence of configurations, knob values by name.

    Attributes:
        configurations: the same as a tuple.
        configs: their knob indices.
        origins: what put each of them into the batch, an ``Origin``.
    """

    configurations: tuple[Mapping[str, Any], ...]
    configs: tuple[Config, ...]
    origins: tuple[str, ...]

    @classmethod
    def of(cls, batch: Batch, space: DesignSpace) -> Asked:
        """What nobody has measured yet of a batch of a space."""
        return cls(
            configurations=tuple(space.decode(config) for config in batch.missing),
            configs=batch.missing,
            origins=tuple(str(batch.origins[config]) for config in batch.missing),
        )

    def __len__(self) -> int:
        return len(self.configurations)

    def __getitem__(self, index: Any) -> Any:
        return self.configurations[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.configurations)


def expect_told(last: Asked | None) -> None:
    """See that there is no batch that waits to be told.

    Raises:
        ConfigError: there is one.
    """
    if last is not None:
        raise ConfigError(
            f"the {len(last)} configurations that were asked for last are not told yet",
            hint="tell(batch, seconds) first, with None for those that have no time",
        )


def expect_last(asked: Asked, last: Asked | None) -> None:
    """See that a batch is the one that waits to be told.

    Raises:
        ConfigError: it is another one.
    """
    if asked is not last:
        raise ConfigError(
            "this batch is not the one that was asked for last, or it was told before",
            hint="tell each batch once, before the next one is asked for",
        )
