"""What else runs a frontend's network than the compiler here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from chameleon_networks.frameworks.reduced import FLOAT32, NetworkForms
from chameleon_networks.frameworks.running import Network


class Runnable(ABC):
    """A network that frameworks run, too: what it is checked against and compared with."""

    @property
    @abstractmethod
    def frameworks(self) -> tuple[str, ...]:
        """What else can run the network here; the first one is the reference."""

    @property
    def exact(self) -> str | None:
        """What ``framework`` can run the network with in float64, where something can."""
        return None

    @property
    @abstractmethod
    def left_out(self) -> Mapping[str, str]:
        """What else could run the network, were it installed: what is missing, by name."""

    @abstractmethod
    def framework(self, name: str, threads: int) -> Network:
        """The network run by something else.

        Args:
            name: one of ``frameworks``, or ``exact``.
            threads: it computes with.
        """

    def precision_of(self, name: str) -> str:  # noqa: ARG002 - others compute in float32
        """What one of ``frameworks`` computes in."""
        return FLOAT32

    @property
    @abstractmethod
    def forms(self) -> NetworkForms:
        """The network in float32 for frameworks that reduce its precision themselves."""
