"""The runner ``rpc``: a fleet of devices behind TVM's RPC."""

from __future__ import annotations

from chameleon_runners.fleet.runner import FleetRunner
from chameleon_runners.rpc.device_refs import device_refs_of
from chameleon_runners.rpc.options import RpcOptions


class RpcRunner(FleetRunner):
    """Builds here, uploads, and measures on remote devices.

    Args:
        options: where they are, and how they are measured on.

    Raises:
        ConfigError: the options name no device.
    """

    def __init__(self, options: RpcOptions) -> None:
        super().__init__(options, device_refs_of(options), kind="rpc")
