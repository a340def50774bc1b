"""Options of the runner ``ray``. This module imports neither Ray nor a numerical library."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators

from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.option_fields import in_place, option, unbound

_GPU = "GPU"
_RESERVED = frozenset({"CPU", _GPU, "memory", "object_store_memory"})


def _declared(_: object, attribute: attrs.Attribute[Any], value: dict[str, float]) -> None:
    for name, amount in value.items():
        if name in _RESERVED or not amount > 0.0:
            raise ValueError(
                f"'{attribute.name}' must be positive amounts of resources that nodes declare "
                f"themselves, not {name!r}: {amount}"
            )


@attrs.frozen(kw_only=True, field_transformer=in_place)
class RayOptions(FleetOptions):
    """Options of the runner ``ray``. All durations are in seconds."""

    address: str = unbound(
        "auto",
        "host:port of the cluster; auto: the cluster that this machine belongs to; local: a"
        " new cluster on this machine for the run",
        check=validators.min_len(1),
    )
    gpus_per_device: int | None = option(
        None, "number of GPUs of a device; null: 1, or 0 if `resources` are given", at_least=0
    )
    resources: dict[str, float] = option(
        dict,
        "other resources of a device, as nodes declare them, such as {npu: 1}",
        check=_declared,
    )
    cpus_per_device: float | None = option(
        None,
        "number of CPUs reserved for a device; null: 0 for a GPU, else `threads`",
        at_least=0.0,
    )
    devices: int | None = unbound(
        None, "largest number of devices; null: all devices of the cluster", at_least=1
    )
    device: str = option(
        "chameleon_runners.cuda.device:CudaDevice",
        "module:Class of the device stage, which sees only its own device",
    )
    device_options: dict[str, Any] = option(dict, "options of the device stage")
    runtime_env: dict[str, Any] = unbound(
        dict, "Ray's runtime environment, for nodes without your modules"
    )

    @property
    def gpus(self) -> int:
        """The number of GPUs that a device consists of."""
        if self.gpus_per_device is None:
            return 0 if self.resources else 1
        return self.gpus_per_device

    @property
    def cpus(self) -> float:
        """The number of CPUs that are reserved for a device."""
        if self.cpus_per_device is None:
            return 0.0 if self.gpus else float(self.threads)
        return self.cpus_per_device

    @property
    def needs(self) -> dict[str, float]:
        """The resources of a node that each device uses, by Ray's names, such as ``GPU``."""
        needs = {_GPU: float(self.gpus), "CPU": self.cpus, **self.resources}
        return {name: amount for name, amount in needs.items() if amount > 0.0}

    @property
    def stage_options(self) -> dict[str, Any]:
        """The options of the device in its worker process on a node.

        The GPU's index is 0, because Ray hides the other GPUs of the node.
        """
        if self.device != attrs.fields(RayOptions).device.default:
            return self.device_options
        return {"kind": "cuda" if self.gpus else "cpu", **self.device_options}
