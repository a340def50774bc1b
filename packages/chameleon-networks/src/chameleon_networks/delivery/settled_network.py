"""A network with what is decided about it before it is delivered."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from chameleon_core.task import Task

from chameleon_networks.delivery.layout_choice import LayoutChoice
from chameleon_networks.delivery.reduced_rivals import ReducedRequest
from chameleon_networks.delivery.typed.decisions import PrecisionDecisions
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.verify import Run


@attrs.frozen(kw_only=True, eq=False)
class SettledNetwork:
    """A network and what was decided about it.

    Attributes:
        network: as its framework has it.
        choice: its layout, and why it is that one.
        named_tasks: gives its tasks for a target.
        precision: the types that its operators may have; None for those that they have anyway.
    """

    network: ImportedNetwork
    choice: LayoutChoice
    named_tasks: Callable[[str], list[Task]]
    precision: PrecisionDecisions | None

    def reduced_request(self, run: Run) -> ReducedRequest | None:
        """As ``PrecisionDecisions.reduced_request``; None if the pipeline names no types."""
        return None if self.precision is None else self.precision.reduced_request(run)
