"""A network, and what was decided about it before it is delivered."""

from __future__ import annotations

from abc import abstractmethod

from chameleon_core.stages import Frontend
from chameleon_core.task import Task

from chameleon_networks.delivery.layout_choice import LayoutChoice
from chameleon_networks.delivery.reduced_rivals import ReducedRequest
from chameleon_networks.delivery.typed.decisions import PrecisionDecisions
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.verify import Run


class SettledNetwork(Frontend):
    """The facts that deliveries know about the frontend of a network.

    Attributes:
        network: as its framework has it.
        choice: the layout of the whole graph, and why it is that one.
        precision: the types that its operators may have; None for those that they have anyway.
    """

    network: ImportedNetwork
    choice: LayoutChoice
    precision: PrecisionDecisions | None

    @abstractmethod
    def named_tasks(self, target: str) -> list[Task]:
        """Its tasks for a resolved target, without a look at the weights."""

    def reduced_request(self, run: Run) -> ReducedRequest | None:
        """The request for rivals in reduced precision; None if the network has no types.

        Args:
            run: the reference.
        """
        return None if self.precision is None else self.precision.reduced_request(run)
