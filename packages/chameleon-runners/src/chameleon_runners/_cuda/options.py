"""Options of the runner ``cuda`` and its devices. This module imports no numerical library."""

from __future__ import annotations

import attrs

from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._option_fields import in_place, option, unbound


def _distinct(
    _: object, attribute: attrs.Attribute[tuple[int, ...]], value: tuple[int, ...]
) -> None:
    if len(set(value)) != len(value) or any(index < 0 for index in value):
        raise ValueError(f"'{attribute.name}' must be different indices, from 0, not {value}")


@attrs.frozen(kw_only=True, field_transformer=in_place)
class CudaOptions(FleetOptions):
    """Options of the runner ``cuda``. All durations are in seconds."""

    devices: tuple[int, ...] | None = option(
        None, "indices of the GPUs, as TVM counts them; null: all", check=_distinct
    )
    cache_mib: int = unbound(
        1024, "size of the inputs that are kept on a device between candidates, in MiB", at_least=1
    )
    cooldown: float = option(0.0, "pause between the repeats of a kernel, in seconds", at_least=0.0)
    kind: str = option("cuda", "TVM's kind of device: cuda, or cpu to try the runner without a GPU")


@attrs.frozen(kw_only=True)
class CudaDeviceOptions:
    """Options of one GPU, which are sent to the GPU's worker process.

    Attributes:
        index: The index of the GPU.
        kind: TVM's kind of device, such as ``cuda``.
        cache_bytes: The size in bytes of the inputs that are kept on the GPU between candidates.
        cooldown: The pause between the repeats of a kernel, in seconds.
    """

    index: int = 0
    kind: str = "cuda"
    cache_bytes: int = 1 << 30
    cooldown: float = 0.0
