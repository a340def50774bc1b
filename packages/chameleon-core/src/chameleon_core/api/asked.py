"""A batch of configurations that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from chameleon_core.loop.round.batch import Config


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

    def __len__(self) -> int:
        return len(self.configurations)

    def __getitem__(self, index: Any) -> Any:
        return self.configurations[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.configurations)


__all__ = ["Asked"]
