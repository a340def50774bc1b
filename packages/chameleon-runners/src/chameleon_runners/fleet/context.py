"""The tools that measure the kernels of one task if devices time what is built here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from chameleon_runners.engine.context import MeasureContext
from chameleon_runners.fleet.candidate_run import FleetCandidateRun
from chameleon_runners.fleet.device_pool import DevicePool
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.pace import PaceMonitor


@attrs.frozen(kw_only=True, eq=False)
class FleetContext(MeasureContext):
    """The same as everywhere, and devices.

    Attributes:
        options: the runner's options.
        devices: the devices.
        paces: how fast they are.
        folder: where artifacts are put.
    """

    options: FleetOptions
    devices: DevicePool
    paces: PaceMonitor
    folder: Path

    def candidate(self, config: Sequence[int], number: int) -> FleetCandidateRun:
        """A configuration on its way.

        Args:
            config: its knob indices.
            number: that no other artifact in the folder has.
        """
        return FleetCandidateRun(
            config=tuple(int(index) for index in config),
            slot=number,
            artifact=self.folder / f"artifact-{number}",
            tries=self.retries + 1,
        )
