"""Options of the runner ``rpc`` and its devices. This module imports no numerical library."""

from __future__ import annotations

import attrs

from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._option_fields import duration, in_place, option, unbound


@attrs.frozen(kw_only=True, field_transformer=in_place)
class RpcOptions(FleetOptions):
    """Options of the runner ``rpc``. All durations are in seconds."""

    tracker: str | None = unbound(None, "host:port of the tracker that the devices belong to")
    key: str | None = option(
        None, "key of the devices; with `address`, the servers' own key, if they have one"
    )
    address: str | tuple[str, ...] = unbound(
        (), "host:port of a server, or a list of them, instead of a tracker"
    )
    devices: int | None = unbound(
        None, "largest number of devices; null: all devices of the tracker", at_least=1
    )
    device_index: int = option(
        0, "index of the device among a server's devices of the target's kind", at_least=0
    )
    priority: int = unbound(1, "priority of requests; the tracker serves higher ones first")
    session_timeout: float = unbound(
        60.0,
        "seconds after which a server ends a session, with any kernel that hangs; sessions "
        "are renewed in time",
        at_least=1.0,
    )
    idle_timeout: float = duration(10.0, "seconds without work after which a device is given back")
    cache_mib: int = unbound(
        1024, "size of the inputs that are kept on a device between candidates, in MiB", at_least=1
    )
    cooldown: float = option(0.0, "pause between the repeats of a kernel, in seconds", at_least=0.0)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of servers in the option ``address``, as a tuple."""
        return (self.address,) if isinstance(self.address, str) else tuple(self.address)


@attrs.frozen(kw_only=True)
class RpcDeviceOptions:
    """Options of one remote device, which are sent to the device's worker process.

    All durations are in seconds. With a ``tracker``, ``address`` is None.

    Attributes:
        proxied: whether several servers may share one address, that of a proxy.
        device_index: the index of the device among the server's devices of the target's kind.
        cache_bytes: the largest number of bytes of inputs that are kept on the device.
    """

    tracker: str | None = None
    address: str | None = None
    key: str = ""
    proxied: bool = False
    device_index: int = 0
    threads: int = 1
    priority: int = 1
    connect_timeout: float = 25.0
    session_timeout: float = 60.0
    idle_timeout: float = 10.0
    cache_bytes: int = 1 << 30
    cooldown: float = 0.0
