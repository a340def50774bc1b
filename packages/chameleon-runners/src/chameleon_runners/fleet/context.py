"""The workers, devices and options with which a fleet measures the kernels of one task."""

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
    """A ``MeasureContext`` with the devices of a fleet.

    Attributes:
        options: The runner's options.
        devices: The devices.
        paces: The object that compares how fast the devices are.
        folder: The folder for exported kernels.
    """

    options: FleetOptions
    devices: DevicePool
    paces: PaceMonitor
    folder: Path

    def candidate(self, config: Sequence[int], number: int) -> FleetCandidateRun:
        """Make the initial state of a configuration that is to be built and measured.

        Args:
            config: The knob indices.
            number: A number that no other exported kernel in the folder has.
        """
        return FleetCandidateRun(
            config=tuple(int(index) for index in config),
            slot=number,
            artifact=self.folder / f"artifact-{number}",
            tries=self.retries + 1,
        )
