"""A network with the decisions that were made about it before its delivery."""

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
    """The part of a network's frontend that a delivery uses.

    Attributes:
        network: The imported network.
        choice: The layout of the whole graph, with the reason for it.
        precision: The dtypes that the operators may have. None if they keep those of the source.
    """

    network: ImportedNetwork
    choice: LayoutChoice
    precision: PrecisionDecisions | None

    @abstractmethod
    def named_tasks(self, target: str) -> list[Task]:
        """The network's tasks for a resolved target, without checking the weights."""

    def reduced_request(self, run: Run) -> ReducedRequest | None:
        """The request to compare with frameworks in reduced precision.

        None if no dtypes are chosen.

        Args:
            run: A function that runs the reference.
        """
        return None if self.precision is None else self.precision.reduced_request(run)
