"""Options of the ``ray`` runner, importable without Ray or any numerical library."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators
from chameleon_core.plugins.options import NOT_BINDING

from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.timing_options import in_place

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
    """Options of the ``ray`` runner; every duration is in seconds."""

    address: str = attrs.field(
        default="auto",
        validator=validators.min_len(1),
        metadata={
            **NOT_BINDING,
            "help": "host:port of the cluster; auto for the one that this machine belongs to, "
            "local to start one here for the run",
        },
    )
    gpus_per_device: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(0)),
        metadata={"help": "GPUs of a device; 1, or none where `resources` are given"},
    )
    resources: dict[str, float] = attrs.field(
        factory=dict,
        validator=_declared,
        metadata={"help": "what else a device is, as nodes declare it, such as {npu: 1}"},
    )
    cpus_per_device: float | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(0.0)),
        metadata={
            "help": "CPUs kept free for a device; `threads` where it is the CPU, 0 for a GPU"
        },
    )
    devices: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={
            **NOT_BINDING,
            "help": "devices used at most; all that the cluster has where not given",
        },
    )
    device: str = attrs.field(
        default="chameleon_runners.cuda.device:CudaDevice",
        metadata={"help": "module:Class of the device stage; it sees its own device only"},
    )
    device_options: dict[str, Any] = attrs.field(
        factory=dict, metadata={"help": "options of the device stage"}
    )
    runtime_env: dict[str, Any] = attrs.field(
        factory=dict,
        metadata={
            **NOT_BINDING,
            "help": "Ray's runtime environment, for nodes that lack your modules",
        },
    )

    @property
    def gpus(self) -> int:
        """GPUs of a device."""
        if self.gpus_per_device is None:
            return 0 if self.resources else 1
        return self.gpus_per_device

    @property
    def cpus(self) -> float:
        """CPUs of a device."""
        if self.cpus_per_device is None:
            return 0.0 if self.gpus else float(self.threads)
        return self.cpus_per_device

    @property
    def needs(self) -> dict[str, float]:
        """What a device takes of its node, by Ray's names."""
        needs = {_GPU: float(self.gpus), "CPU": self.cpus, **self.resources}
        return {name: amount for name, amount in needs.items() if amount > 0.0}

    @property
    def stage_options(self) -> dict[str, Any]:
        """Options of the device stage. Ray hides other GPUs, so the device's index is 0."""
        if self.device != attrs.fields(RayOptions).device.default:
            return self.device_options
        return {"kind": "cuda" if self.gpus else "cpu", **self.device_options}


__all__ = ["RayOptions"]
