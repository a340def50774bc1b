"""Options of the runner ``ray``. This module imports neither Ray nor a numerical library."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators

from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._option_fields import in_place, option, unbound

LOCAL = "local"
"""The device that is the CPU of a node."""

_OWN_STAGE = "chameleon_runners._cuda.device:CudaDevice"
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
        None,
        "number of GPUs of a device; null: 1, or 0 for `resources` and for a node's CPU",
        at_least=0,
    )
    resources: dict[str, float] = option(
        dict,
        "other resources of a device, as nodes declare them, such as {npu: 1}",
        check=_declared,
    )
    cpus_per_device: float | None = option(
        None,
        "number of CPUs reserved for a device; null: 0 for a GPU or a node's CPU, else `threads`",
        at_least=0.0,
    )
    devices: int | None = unbound(
        None, "largest number of devices; null: all devices of the cluster", at_least=1
    )
    device: str | None = option(
        None,
        "module:Class of the device stage; local: the CPU of a node; null: a GPU or `resources`, "
        "but local for targets of CPUs or without GPUs",
    )
    device_options: dict[str, Any] = option(dict, "options of the device stage")
    runtime_env: dict[str, Any] = unbound(
        dict, "Ray's runtime environment, for nodes without your modules"
    )

    def choices(self, *, for_cpus: bool) -> list[RayOptions]:
        """These options with a value of ``device``, in the order of preference."""
        if self.device is not None:
            return [self]
        gpu, local = (attrs.evolve(self, device=device) for device in (_OWN_STAGE, LOCAL))
        if self.resources or self.gpus_per_device:
            return [gpu]
        return [local] if for_cpus or self.gpus_per_device == 0 else [gpu, local]

    @property
    def local(self) -> bool:
        """Whether a device is the CPU of a node."""
        return self.device == LOCAL

    @property
    def gpus(self) -> int:
        """The number of GPUs that a device consists of."""
        if self.gpus_per_device is None:
            return 0 if self.resources or self.local else 1
        return self.gpus_per_device

    @property
    def cpus(self) -> float:
        """The number of CPUs that are reserved for a device."""
        if self.cpus_per_device is None:
            return 0.0 if self.gpus or self.local else float(self.threads)
        return self.cpus_per_device

    @property
    def needs(self) -> dict[str, float]:
        """The resources of a node that each device uses, by Ray's names, such as ``GPU``."""
        cpus = max(self.cpus, float(self.threads)) if self.local else self.cpus
        needs = {_GPU: float(self.gpus), "CPU": cpus, **self.resources}
        return {name: amount for name, amount in needs.items() if amount > 0.0}

    @property
    def stage(self) -> tuple[str, dict[str, Any]]:
        """The class of the device in its worker process on a node, and its options."""
        if self.device not in {LOCAL, _OWN_STAGE}:
            return str(self.device), self.device_options
        # The index of the GPU is 0, because Ray hides the other GPUs of the node.
        return _OWN_STAGE, {"kind": "cuda" if self.gpus else "cpu", **self.device_options}
