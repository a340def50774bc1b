"""A device as data: what a worker process makes it from."""

from __future__ import annotations

import attrs
from chameleon_core.stages import StageRef


@attrs.frozen(kw_only=True)
class DeviceRef:
    """One device that candidates can be sent to.

    Attributes:
        name: what it is called in messages and records; two of one name are one device.
        device: the ``chameleon_core.stages.Device``, as data. A worker process makes it and has
            it to itself.
    """

    name: str
    device: StageRef
