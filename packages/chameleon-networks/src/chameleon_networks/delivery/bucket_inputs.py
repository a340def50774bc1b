"""Which inputs of a user's belong to one bucket of shapes, and what they become for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chameleon_core.stages import Arrays

if TYPE_CHECKING:
    from chameleon_networks.package.buckets import Buckets
    from chameleon_networks.running.samples import Sample


class BucketInputs:
    """Takes inputs for a bucket as the delivered network would: by their shapes, filled up.

    Args:
        name: of the bucket.
        dispatch: gives what chooses among all buckets; it is called with the first inputs.

    Attributes:
        name: that.
    """

    def __init__(self, name: str, dispatch: Callable[[], Buckets]) -> None:
        self.name = name
        self._dispatch = dispatch

    def chosen(self, inputs: Arrays) -> tuple[str, Sample]:
        """The name of the bucket that inputs belong to, and what they become in it.

        Args:
            inputs: one array each, of any shapes.

        Raises:
            ValueError: no bucket takes them.
        """
        from chameleon_networks.running.samples import Sample  # noqa: PLC0415 - of the graph's

        placed = self._dispatch().placed(*inputs)
        return placed.bucket, Sample(inputs=placed.inputs, kept=tuple(placed.kept))


__all__ = ["BucketInputs"]
