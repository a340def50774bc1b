"""The loop nest of a convolution, and the primitive transformations of its domain.

Turner et al. (ASPLOS 2021, section 4) write a convolution as the nest

    for co, oh, ow, ci, kh, kw:
        O[co, oh, ow] += W[co, ci, kh, kw] * I[ci, oh * s + kh, ow * s + kw]

A neural transformation changes the domains of these loops, and so the result. A bottleneck shortens
the domain of co. Grouping ties tiles of co to tiles of ci.
"""

from __future__ import annotations

from math import gcd

import attrs


@attrs.frozen(kw_only=True)
class Extent:
    """A part of a loop's domain: ``length`` iterations from ``start``."""

    start: int
    length: int

    @property
    def stop(self) -> int:
        """The first iteration after the part."""
        return self.start + self.length


@attrs.frozen(kw_only=True)
class Nest:
    """A loop nest that computes a part of a stage's output from a part of its input.

    Attributes:
        outputs: Domain of co: the output channels that the nest computes.
        inputs: Domain of ci: the input channels that the nest reads, of all groups together.
        rows: Domain of oh: the output rows that the nest computes.
        kernel: Extents of kh and kw.
        stride: Strides of rows and columns.
        dilation: Dilations of rows and columns.
        padding: Zeros around the stage's whole input: top, left, bottom, right.
        size: Rows and columns of the stage's input.
        groups: Number of groups of channels. The output channels of a group read only the input
            channels of the same group. 1 if all output channels read all input channels.
    """

    outputs: Extent
    inputs: Extent
    rows: Extent
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    size: tuple[int, int]
    groups: int = 1

    @property
    def dilated_kernel(self) -> tuple[int, int]:
        """Rows and columns that a dilated filter covers."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    @property
    def columns(self) -> int:
        """The extent of ow: the number of output columns."""
        _, left, _, right = self.padding
        return (self.size[1] + left + right - self.dilated_kernel[1]) // self.stride[1] + 1

    @property
    def all_rows(self) -> int:
        """Number of output rows of the whole stage."""
        top, _, bottom, _ = self.padding
        return (self.size[0] + top + bottom - self.dilated_kernel[0]) // self.stride[0] + 1

    @property
    def _reads(self) -> tuple[int, int]:
        """First input row that the nest reads, and the end of the rows; padding counts."""
        first = self.rows.start * self.stride[0] - self.padding[0]
        last = (self.rows.stop - 1) * self.stride[0] + self.dilated_kernel[0] - self.padding[0]
        return first, last

    @property
    def read_rows(self) -> Extent:
        """Input rows that the nest reads, without padding."""
        first, last = self._reads
        start, stop = max(0, first), min(self.size[0], last)
        return Extent(start=start, length=stop - start)

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Zeros around the input rows that this nest reads: top, left, bottom, right."""
        first, last = self._reads
        _, left, _, right = self.padding
        return (max(0, -first), left, max(0, last - self.size[0]), right)

    @property
    def multiply_adds(self) -> int:
        """Number of iterations of the whole nest for one sample."""
        return self.parameters * self.rows.length * self.columns

    @property
    def parameters(self) -> int:
        """Number of weights that the nest reads."""
        taps = self.kernel[0] * self.kernel[1]
        return self.outputs.length * (self.inputs.length // self.groups) * taps

    def tie(self, tiles: int) -> Nest | None:
        """Group the nest's channels: divide outputs and inputs into ``tiles`` times as many groups.

        Each group of output channels reads only its own group of input channels.

        Returns:
            The nest, or None if the numbers of channels are not divisible into so many groups.
        """
        groups = self.groups * tiles
        if tiles < 2 or self.outputs.length % groups or self.inputs.length % groups:  # noqa: PLR2004
            return None
        return attrs.evolve(self, groups=groups)

    @property
    def most_groups(self) -> int:
        """The largest number of tiles that divides both domains of channels."""
        return gcd(self.outputs.length, self.inputs.length)

    def shrunk(self, by: int) -> Nest | None:
        """Make a bottleneck of the nest: keep only the first 1 / ``by`` of its output channels.

        Returns:
            The nest. None if ``by`` does not divide the number of output channels, or if the groups
            do not divide the number that is kept.
        """
        length = self.outputs.length // by
        if by < 2 or self.outputs.length % by or length % self.groups:  # noqa: PLR2004
            return None
        return attrs.evolve(self, outputs=Extent(start=0, length=length))

    def split_outputs(self, parts: int) -> tuple[Nest, ...] | None:
        """Split the nest into nests for equal parts of its output channels, or return None.

        None means that the number of channels is not divisible by ``parts``, or that the channels
        are in groups.

        Args:
            parts: The number of parts.
        """
        if parts < 2 or self.groups > 1 or self.outputs.length % parts:  # noqa: PLR2004
            return None
        length = self.outputs.length // parts
        return tuple(self._outputs(part * length, length) for part in range(parts))

    def split_outputs_at(self, first: int) -> tuple[Nest, Nest] | None:
        """Split off the first output channels; None if grouped or if a part is empty."""
        if self.groups > 1 or not 0 < first < self.outputs.length:
            return None
        return self._outputs(0, first), self._outputs(first, self.outputs.length - first)

    def _outputs(self, at: int, length: int) -> Nest:
        return attrs.evolve(self, outputs=Extent(start=self.outputs.start + at, length=length))

    def split_rows(self, parts: int) -> tuple[Nest, ...] | None:
        """Split the nest into nests for equal parts of its output rows, or return None.

        Each part reads only the input rows that it needs. None means that the number of rows is not
        divisible, or that a part would read only padding.

        Args:
            parts: The number of parts.
        """
        if parts < 2 or self.rows.length % parts:  # noqa: PLR2004
            return None
        length = self.rows.length // parts
        nests = tuple(
            attrs.evolve(self, rows=Extent(start=self.rows.start + part * length, length=length))
            for part in range(parts)
        )
        return nests if all(nest.read_rows.length > 0 for nest in nests) else None
