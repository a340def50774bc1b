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
        device: The name of a class of ``chameleon_core.stages.Device``, with its options. One
            worker process creates the object from them and has the device to itself.
    """

    name: str
    device: StageRef
