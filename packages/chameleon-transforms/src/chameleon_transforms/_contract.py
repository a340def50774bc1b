"""The base classes of plugins of the kinds ``transforms`` and ``network_scores``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chameleon_transforms._nest.program import Program

if TYPE_CHECKING:
    from torch import Tensor


class Transform(ABC):
    """A transformation of a convolution's loop nests. Plugins derive their transforms from it.

    Chameleon creates a transform by calling its class with the options as the only argument.

    Attributes:
        options: The transform's options from the pipeline.
    """

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def variants(self, program: Program) -> Iterable[tuple[str, Program]]:
        """Yield the programs that the transform can make of a convolution's program.

        Args:
            program: A convolution, possibly transformed before.

        Yields:
            Pairs of a label and a program. The label, such as ``group(4)``, is unique for the
            transform's options. The program has the same input and output shapes. Nothing is
            yielded if the transform is illegal for this program.
        """


class UntrainedNetwork(ABC):
    """A network with random initial weights and a minibatch, as a score gets it."""

    images: Tensor
    """The minibatch's images, shape (n, channels, rows, columns)."""
    labels: Tensor
    """The classes of the images, shape (n,)."""
    multiply_adds: int
    """Number of multiply-adds of all convolutions, for one sample."""

    @abstractmethod
    def run(
        self, images: Tensor, *, normalised: bool = True
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Run the network; batch normalization uses the statistics of the batch.

        Args:
            images: Any number of images, each of the same shape as in ``self.images``.
            normalised: Whether to apply batch normalization; otherwise it is left out.

        Returns:
            The network's outputs, shape (n, classes), and a mapping with an entry for each
            convolution of the original network, by layer name. An entry is the output of the layers
            that replace the convolution, after normalization and activation, shape (n, channels,
            ...).
        """

    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """The weights with which the network's convolutions and matrix products compute."""


class NetworkScore(ABC):
    """Predicts, without training, how accurate a network can become.

    Chameleon creates a score by calling its class with the options as the only argument.
    """

    proportional: bool = False
    """Whether the score counts parts of a network, such as weights, so that a cheaper network has a
    lower score by construction. Such a candidate is accepted if its share of the original's score
    is at least its share of the original's multiply-adds. For other scores, a candidate is accepted
    if its score is not below the original's."""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def score(self, network: UntrainedNetwork) -> float:
        """Compute the score of a network; larger is better.

        The score is not finite if the network cannot be scored.

        Args:
            network: The network with its initial weights and the minibatch.
        """
