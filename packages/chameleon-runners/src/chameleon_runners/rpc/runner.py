"""The runner ``rpc``: a fleet of devices behind TVM's RPC."""

from __future__ import annotations

from chameleon_runners.fleet.runner import FleetRunner
from chameleon_runners.rpc.options import RpcOptions
from chameleon_runners.rpc.places import places_of


class RpcRunner(FleetRunner):
    """Builds here, uploads, and measures on remote devices.

    Args:
        options: where they are, and how they are measured on.

    Raises:
        ConfigError: the options name no device.
    """

    def __init__(self, options: RpcOptions) -> None:
        super().__init__(options, places_of(options), kind="rpc")
