"""The contract of plugins of the kinds ``transforms`` and ``network_scores``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chameleon_transforms.nest.program import Program

if TYPE_CHECKING:
    from torch import Tensor


class Transform(ABC):
    """A transformation of one convolution's loop nests; made as ``Class(options)``.

    Attributes:
        options: as the pipeline names them.
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def variants(self, program: Program) -> Iterable[tuple[str, Program]]:
        """The variants that it can make of a program.

        Args:
            program: a convolution, perhaps transformed before.

        Yields:
            Pairs of a label, unique for the transform's options, such as ``group(4)``, and a
            program with input and output of the same shapes. Nothing if it is illegal.
        """


class Judged(ABC):
    """A network at its initialisation, on one minibatch."""

    images: Tensor
    """Shape (n, channels, rows, columns)."""
    labels: Tensor
    """Classes, shape (n,)."""
    multiply_adds: int
    """Multiply-adds of all convolutions, for one sample."""

    @abstractmethod
    def run(
        self, images: Tensor, *, normalised: bool = True
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Run the network with statistics of the batch.

        Args:
            images: of the shape of ``images``, of any number of samples.
            normalised: whether batch normalisation is there; else it is left out.

        Returns:
            Its outputs, shape (n, classes), and what each convolution of the original is replaced
            by computes, after normalisation and activation: by layer, shape (n, channels, ...).
        """

    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """The weights of convolutions and products that the network uses."""


class NetworkScore(ABC):
    """Tells without training how well a network may learn; made as ``Class(options)``."""

    proportional: bool = False
    """Whether it counts what a network has, so that a cheaper one has less of it by construction.
    A candidate is then accepted if it keeps as large a share of the original's score as of its
    multiply-adds; otherwise if it is not below the original."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def score(self, network: Judged) -> float:
        """The larger, the better; not finite if it cannot be told."""
