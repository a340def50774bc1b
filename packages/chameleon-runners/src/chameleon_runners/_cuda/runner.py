"""The runner ``cuda``: a fleet of this machine's GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from chameleon_core.plugin_api import StageRef, TargetError

from chameleon_runners._cuda.monitor import count_gpus
from chameleon_runners._cuda.options import CudaDeviceOptions, CudaOptions
from chameleon_runners._fleet.device_state import DeviceRef
from chameleon_runners._fleet.runner import FleetRunner

FACTORY = "chameleon_runners._cuda.device:CudaDevice"


class CudaRunner(FleetRunner):
    """Builds candidates on the CPU and measures on all GPUs of this machine."""

    def __init__(self, options: CudaOptions) -> None:
        super().__init__(options, device_refs_of(options), kind="cuda")


def device_refs_of(options: CudaOptions) -> Callable[[], Sequence[DeviceRef]]:
    """A function that lists the GPUs to measure on: those in the options, or all."""
    if options.devices is not None:
        chosen = [_device_ref(options, index) for index in options.devices]
        return lambda: chosen

    def all_devices() -> list[DeviceRef]:
        count, problem = count_gpus()
        if not count:
            raise TargetError(
                f"there is no GPU to measure on: {problem}",
                hint="See that `nvidia-smi` lists it. GPUs of other machines are reached with "
                "`runner: rpc`; builds need no GPU.",
            )
        return [_device_ref(options, index) for index in range(count)]

    return all_devices


def _device_ref(options: CudaOptions, index: int) -> DeviceRef:
    device = CudaDeviceOptions(
        index=index,
        kind=options.kind,
        cache_bytes=options.cache_mib << 20,
        cooldown=options.cooldown,
    )
    reference = StageRef(factory=FACTORY, options=attrs.asdict(device))
    return DeviceRef(name=f"{options.kind}:{index}", device=reference)
