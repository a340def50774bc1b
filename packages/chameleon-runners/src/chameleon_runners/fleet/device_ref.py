"""The description of a device, from which a worker process makes the device."""

from __future__ import annotations

import attrs
from chameleon_core.stages import StageRef


@attrs.frozen(kw_only=True)
class DeviceRef:
    """One device of a fleet.

    Attributes:
        name: The device's name in messages and records. Two references with one name mean the same
            device.
        device: The ``chameleon_core.stages.Device`` as data. One worker process makes it, and no
            other process shares it.
    """

    name: str
    device: StageRef
