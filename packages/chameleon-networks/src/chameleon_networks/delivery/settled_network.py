"""A network with the run's decisions: its layout, and the dtypes that each operator may have.

The delivery chooses one of these dtypes for each operator, by time and error.
"""

from __future__ import annotations

from abc import abstractmethod

from chameleon_core.stages import Frontend
from chameleon_core.task import Task

from chameleon_networks.delivery.layout_choice import LayoutChoice
from chameleon_networks.delivery.reduced_rivals import ReducedRequest
from chameleon_networks.delivery.typed.decisions import PrecisionDecisions
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.processes import NetworkProcess
from chameleon_networks.running.verify import Run


class SettledNetwork(Frontend):
    """A network with its chosen layout and the dtypes that it may have, ready for delivery.

    Attributes:
        network: The imported network.
        choice: The layout of the whole graph, with the reason for it.
        precision: The dtypes that the operators may have. None if they keep those of the source.
        answered: Whether this run's check kept the reference's outputs.
        reader: The process that imported the network, or None.
        runner: A process that will run the compiled network, or None if none was started yet.
    """

    network: ImportedNetwork
    choice: LayoutChoice
    precision: PrecisionDecisions | None
    answered: bool = False
    reader: NetworkProcess | None = None
    runner: NetworkProcess | None = None

    @abstractmethod
    def named_tasks(self, target: str) -> list[Task]:
        """The network's tasks for a resolved target, without checking the weights."""

    def reduced_request(self, run: Run) -> ReducedRequest | None:
        """The request to compare with frameworks that compute in reduced precision.

        None if the network keeps the dtypes of its source.

        Args:
            run: A function that computes the reference's outputs for some inputs.
        """
        return None if self.precision is None else self.precision.reduced_request(run)
