"""Options of the ``cuda`` runner and of its devices, importable without a numerical library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.plugins.options import NOT_BINDING

from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.timing_options import in_place


def _distinct(
    _: object, attribute: attrs.Attribute[tuple[int, ...]], value: tuple[int, ...]
) -> None:
    if len(set(value)) != len(value) or any(index < 0 for index in value):
        raise ValueError(f"'{attribute.name}' must be different indices, from 0, not {value}")


@attrs.frozen(kw_only=True, field_transformer=in_place)
class CudaOptions(FleetOptions):
    """Options of the ``cuda`` runner; every duration is in seconds."""

    devices: tuple[int, ...] | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(_distinct),
        metadata={"help": "indices of the GPUs, as TVM counts them; all of them where not given"},
    )
    cache_mib: int = attrs.field(
        default=1024,
        validator=validators.ge(1),
        metadata={**NOT_BINDING, "help": "inputs kept on a device between candidates, in MiB"},
    )
    cooldown: float = attrs.field(
        default=0.0,
        validator=validators.ge(0.0),
        metadata={"help": "pause between the repeats of a kernel"},
    )
    kind: str = attrs.field(
        default="cuda",
        metadata={"help": "TVM's kind of device: cuda, or cpu to try the runner without a GPU"},
    )


@attrs.frozen(kw_only=True)
class CudaDeviceOptions:
    """One GPU, as its worker process is told.

    Attributes:
        index: of the device.
        kind: TVM's kind of device.
        cache_bytes: inputs kept there.
        cooldown: pause between the repeats of a kernel, in seconds.
    """

    index: int = 0
    kind: str = "cuda"
    cache_bytes: int = 1 << 30
    cooldown: float = 0.0


__all__ = ["CudaDeviceOptions", "CudaOptions"]
